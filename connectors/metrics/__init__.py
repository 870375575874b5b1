"""Metric stores and experiment trackers: Prometheus, MLflow, Weights & Biases."""
