"""Diagnoses of past jobs: select them, run them, and summarize what would have been posted."""
