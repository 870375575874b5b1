"""Tests of bot.slack.blocks."""
