"""Tests of kb.facts."""
