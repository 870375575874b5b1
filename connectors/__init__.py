"""Connectors: each fetches what one system knows about one job, as values of kb.model."""
