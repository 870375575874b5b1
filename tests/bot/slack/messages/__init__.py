"""Tests of bot.slack.messages."""
