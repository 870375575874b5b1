"""Tests of connectors.log_stores.elasticsearch."""
