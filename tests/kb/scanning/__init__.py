"""Tests of kb.scanning."""
