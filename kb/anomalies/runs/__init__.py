"""A run against other runs: a good one of the same job, and what failed runs have in common."""
