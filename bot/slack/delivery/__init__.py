"""Delivers rows to Slack: composes messages, sends them once, and uploads attachments."""
