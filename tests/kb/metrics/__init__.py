"""Tests of kb.metrics."""
