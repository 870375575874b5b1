"""The Slack app: messages and forms as pure functions of values, and what commands and clicks do."""
