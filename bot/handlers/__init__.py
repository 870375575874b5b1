"""What workers do for each kind of task: diagnose, list recent jobs, send a digest, keep a baseline."""
