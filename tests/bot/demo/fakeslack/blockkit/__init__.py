"""Tests of bot.demo.fakeslack.blockkit."""
