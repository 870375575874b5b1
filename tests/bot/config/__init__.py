"""Tests of bot.config."""
