"""Evidence from one host: process table, stacks, kernel log, eBPF probes, NCCL RAS, Flight Recorder."""
