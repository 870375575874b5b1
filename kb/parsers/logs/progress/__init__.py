"""Iteration lines: the step that a run has reached and what it measured there, in the forms that training programs print."""
