"""Detects whether a job hangs and where: probes and their vote, phases that explain silence, the job's pace, and late ranks."""
