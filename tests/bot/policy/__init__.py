"""Tests of bot.policy."""
