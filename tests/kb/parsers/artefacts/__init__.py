"""Tests of kb.parsers.artefacts."""
