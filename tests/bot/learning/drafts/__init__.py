"""Tests of bot.learning.drafts."""
