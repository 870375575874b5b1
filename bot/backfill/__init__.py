"""Diagnoses of past jobs: which to take, run them, and sum up what would have been said."""
