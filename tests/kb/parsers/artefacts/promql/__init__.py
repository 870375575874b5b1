"""Tests of kb.parsers.artefacts.promql."""
