"""Block Kit builders, their limits, and Slack's mrkdwn."""
