"""Compares a run with its own past: the step at which something changed, its stage, and its end."""
