"""Tests of kb.anomalies."""
