"""Tests of bot.render."""
