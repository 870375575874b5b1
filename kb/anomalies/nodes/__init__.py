"""Which nodes and ranks differ from their peers, and on what grounds."""
