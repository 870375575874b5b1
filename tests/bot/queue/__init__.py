"""Tests of bot.queue."""
