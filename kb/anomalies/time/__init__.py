"""A run against its own past: the step at which something changed, its stage, and its end."""
