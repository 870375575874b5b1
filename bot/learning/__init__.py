"""Learning from incidents that people closed: rules are mined, tried on all that was seen, counted in shadow, proposed."""
