"""Tests of bot.slack.delivery."""
