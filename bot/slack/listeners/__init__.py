"""What happens with each delivery of Slack, by feature: read it, write it down, acknowledge it."""
