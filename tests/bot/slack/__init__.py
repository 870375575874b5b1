"""Slack: what is shown, and how actions are handled."""
