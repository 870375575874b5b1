"""Watching a running job: followed logs, polled metrics, probe cycles, and votes on a hang."""
