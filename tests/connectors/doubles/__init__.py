"""Strict doubles of systems that cannot be had here, written from their documentation."""
