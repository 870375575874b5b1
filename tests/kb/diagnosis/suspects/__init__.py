"""Tests of kb.diagnosis.suspects."""
