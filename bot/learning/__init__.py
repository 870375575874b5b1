"""Learning from closed incidents: rules are mined, replayed on past incidents, evaluated in shadow, and proposed."""
