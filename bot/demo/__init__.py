"""The demo: sample incidents and a local Slack double. Nothing but bot.cli imports it."""
