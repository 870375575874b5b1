"""Tests of connectors.files."""
