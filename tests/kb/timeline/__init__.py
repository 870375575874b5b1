"""Tests of kb.timeline."""
