"""Decisions without a store: permissions, routing, notification limits, how a job ended."""
