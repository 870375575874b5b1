"""Parsers of files beside the logs: Flight Recorder dumps, stack dumps, metrics, health checks, eBPF output, processes."""
