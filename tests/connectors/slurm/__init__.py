"""Tests of connectors.slurm."""
