"""Which nodes and ranks stand apart from their peers, and on what grounds."""
