"""Compares the stacks of a job's ranks: whether they stand still, which rank is not where the others are, and what it does."""
