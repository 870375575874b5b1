"""Listeners for everything Slack delivers, by feature. Each reads a delivery, records it and acknowledges it."""
