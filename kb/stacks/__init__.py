"""What the stacks of a job's ranks say together: whether they stand still, who is not where the others are, and at what."""
