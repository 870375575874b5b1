"""Tests of bot.backfill."""
