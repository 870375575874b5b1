"""Tests of bot.incidents."""
