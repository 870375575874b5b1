"""Tests of connectors.base."""
