"""Tests of kb.anomalies.events."""
