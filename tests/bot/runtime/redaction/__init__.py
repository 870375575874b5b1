"""Tests of bot.runtime.redaction."""
