"""Tests of bot.live."""
