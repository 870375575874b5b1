"""Decisions that need no store: who may do what, where a notification goes, how a job ended."""
