"""Modals: close-out, an incident's life, rule proposals, and the fields they share."""
