"""Tests of kb.diagnosis.context."""
