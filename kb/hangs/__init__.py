"""Detects whether and where a job hangs, using probes that vote, phases that explain silence, its pace, and late ranks."""
