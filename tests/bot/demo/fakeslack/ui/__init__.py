"""Tests of bot.demo.fakeslack.ui."""
