"""Tests of kb.ras."""
