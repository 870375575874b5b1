"""What one host knows of the processes on it: process table, stacks, kernel log, eBPF probes, NCCL RAS, Flight Recorder."""
