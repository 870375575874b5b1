"""Compares the stacks of a job's ranks: whether they are stuck, which rank differs, and what it does."""
