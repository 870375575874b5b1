"""Modals: close-out, incident lifecycle, rule proposals, and the fields they share."""
