"""Tests of bot.learning.replay."""
