"""Answers of Prometheus' query_range: series of dcgm-exporter, node_exporter and kube metrics with a resource and a unit.

Missing values stay missing: a value that is not a number is skipped and reported as a gap, never turned into 0. Answers
are untrusted: size, series, points and labels are bounded, and a broken series is skipped alone.
"""
