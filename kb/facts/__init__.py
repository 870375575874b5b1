"""The evidence of one job in the form that rules and detectors ask it in."""
