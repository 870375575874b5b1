"""Tests of kb.parsers.logs.exceptions."""
