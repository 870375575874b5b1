"""Stacks of running processes, as several tools write them."""
