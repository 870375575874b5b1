"""Block Kit builders and limits, and Slack mrkdwn."""
