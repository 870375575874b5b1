"""Tests of bot.authoring."""
