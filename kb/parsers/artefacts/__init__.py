"""Parsers of different files than logs: Flight Recorder dumps, stacks, metrics, health checks, eBPF output, processes."""
