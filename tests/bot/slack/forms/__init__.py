"""Tests of bot.slack.forms."""
