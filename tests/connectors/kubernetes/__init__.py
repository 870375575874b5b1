"""Tests of connectors.kubernetes."""
