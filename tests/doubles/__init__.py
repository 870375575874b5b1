"""Strict doubles of systems that tests cannot have: their limits, errors and costs included."""
