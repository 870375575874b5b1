"""Tests of kb.collectives."""
