"""Parsers of what schedulers say of a job: Slurm's accounting and JSON, Kubernetes objects and events."""
