"""Tests of the drawings of a run."""
