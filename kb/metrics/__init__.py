"""Metric series of all ranks: panels, outliers among peers, change points, detectors."""
