"""Tests of connectors.nodes."""
