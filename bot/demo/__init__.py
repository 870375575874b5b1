"""The demo: sample incidents and a local Slack double. Only bot.cli imports it."""
