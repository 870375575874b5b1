"""Listeners for everything Slack delivers, by feature. Each reads a delivery, writes it down and acknowledges it."""
