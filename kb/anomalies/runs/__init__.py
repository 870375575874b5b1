"""Compares a run with other runs: with a good one of the same job, and failed runs with each other."""
