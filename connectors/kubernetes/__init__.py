"""Kubernetes: workloads, pods, events and logs of a job, through the API server."""
