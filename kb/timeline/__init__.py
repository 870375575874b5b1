"""The activity of all ranks over time as drawable values: rows, marks and curves."""
