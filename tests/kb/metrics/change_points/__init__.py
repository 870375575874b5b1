"""Tests of kb.metrics.change_points."""
