"""Tests of kb.anomalies.nodes."""
