"""Tests of bot.learning.proposals."""
