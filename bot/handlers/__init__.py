"""What workers do for each kind of task: answer, list, send a digest, keep a baseline."""
