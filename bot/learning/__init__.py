"""Learning from closed incidents: rules are mined, replayed on past incidents, counted in shadow, and proposed."""
