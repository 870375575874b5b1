"""What earlier incidents teach of a new one: those that looked alike, the same node, data or step again, how advice fared."""
