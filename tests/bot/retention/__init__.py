"""Tests of bot.retention."""
