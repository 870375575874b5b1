"""Messages and the home tab as blocks, drawn from values; none of them knows a store."""
