"""Compares the recorders of a job's ranks: which ranks never joined, are behind, disagree, or only wait."""
