"""Tests of kb.templates."""
