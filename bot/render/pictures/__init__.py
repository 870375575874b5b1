"""Drawings of a run: the ranks over time, curves, and their conversion to PNG."""
