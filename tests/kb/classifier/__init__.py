"""Tests of kb.classifier."""
