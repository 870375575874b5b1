"""Slurm: jobs, their accounting and logs, through its commands or slurmrestd."""
