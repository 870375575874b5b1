"""What is kept, for how long: the sweep, archived rows, kept evidence, unpacking."""
