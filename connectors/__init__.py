"""Connectors: each fetches what one system knows of one job and returns values of kb.model."""
