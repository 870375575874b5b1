"""Answers of Prometheus' query_range: series of dcgm-exporter, node_exporter and kube metrics with a resource and a unit.

What is missing stays missing: a value that is not a number is left out and reported as a gap, never turned into 0.
Answers are hostile until read: size, series, points and labels are bounded, and a broken series costs itself only.
"""
