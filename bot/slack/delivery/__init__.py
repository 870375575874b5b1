"""From rows to Slack: composing messages, sending them once, attachments."""
