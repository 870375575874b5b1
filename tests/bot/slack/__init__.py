"""Slack: what is shown and what comes back."""
