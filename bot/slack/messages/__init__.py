"""Messages and the home tab as blocks. These are pure functions of values, without a store."""
