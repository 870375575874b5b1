"""The facts of one log by offset: stages, starts, ends, exceptions that a program survived. Other logs are not considered."""
