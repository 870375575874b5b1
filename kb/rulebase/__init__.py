"""The rule base as values: rules and rulebook, with their schema, checks, lint, overlays and compilation."""
