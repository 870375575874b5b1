"""Tests of connectors.host."""
