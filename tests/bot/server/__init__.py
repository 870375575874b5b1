"""Tests of bot.server."""
