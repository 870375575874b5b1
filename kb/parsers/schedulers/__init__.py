"""Parsers of schedulers' records of a job: Slurm's accounting and JSON, Kubernetes objects and events."""
