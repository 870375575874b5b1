"""Iteration lines: a run's step and its measurements, in the formats that training programs print."""
