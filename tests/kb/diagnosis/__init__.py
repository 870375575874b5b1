"""Tests of kb.diagnosis."""
