"""Relates a new incident to earlier ones: those that looked alike, a recurring node, shard or step, and how advice worked out."""
