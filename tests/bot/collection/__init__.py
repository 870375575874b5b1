"""Tests of bot.collection."""
