"""Tests of kb.parsers.logs."""
