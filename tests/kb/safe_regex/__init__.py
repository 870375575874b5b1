"""Tests of kb.safe_regex."""
