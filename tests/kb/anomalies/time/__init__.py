"""Tests of kb.anomalies.time."""
