"""Tests of kb.regex."""
