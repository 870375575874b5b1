"""Tests of bot.diagnosis."""
