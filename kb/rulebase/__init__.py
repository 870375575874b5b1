"""The rule base as values: rules and rulebook, their schema, checks, lint, overlays, and compilation."""
