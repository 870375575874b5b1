"""Tests of connectors.metrics."""
