"""Detectors over the series of one stream; each returns the points at which the values go wrong.

A detector never fires on what a healthy run shows: first steps, evaluation and checkpoint steps, the noise of small
batches. All take training points ordered by offset.
"""
