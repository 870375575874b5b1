"""Incidents between report and close-out: their life, resolution, node exclusions, precedents, handover."""
