"""Tests of kb.metrics.series_detectors."""
