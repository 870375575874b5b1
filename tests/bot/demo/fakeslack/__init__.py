"""Tests of bot.demo.fakeslack."""
