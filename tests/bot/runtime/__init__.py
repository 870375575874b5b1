"""Tests of bot.runtime."""
