"""Tests of kb.precedents."""
