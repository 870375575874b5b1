"""Tests of kb.parsers.schedulers."""
