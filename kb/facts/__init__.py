"""The evidence of one job, as rules and detectors query it."""
