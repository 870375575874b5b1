"""Tests of kb.parsers.artefacts.flight."""
