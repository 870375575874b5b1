"""What one host knows about its processes: process table, stacks, kernel log, eBPF probes, NCCL RAS, Flight Recorder."""
