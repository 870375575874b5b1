"""Tests of bot.learning.advice."""
