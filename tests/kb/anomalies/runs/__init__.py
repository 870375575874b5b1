"""Tests of kb.anomalies.runs."""
