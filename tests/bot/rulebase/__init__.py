"""Tests of bot.rulebase."""
