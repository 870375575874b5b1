"""Messages and the home tab as blocks. Pure functions of values, without a store."""
