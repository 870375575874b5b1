"""Tests of kb.anomalies.core."""
