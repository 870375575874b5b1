"""From rows to Slack: compose messages, send them once, upload attachments."""
