"""Strict doubles of systems that are not available to tests, including their limits, errors and costs."""
