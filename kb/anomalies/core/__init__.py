"""Shared by the comparisons of a run: the run as a value, words of severity, the clocks of nodes against each other."""
