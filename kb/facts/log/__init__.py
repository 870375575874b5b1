"""The facts of one log by offset: stages, starts, ends, exceptions that a program lived with. Knows nothing of other logs."""
