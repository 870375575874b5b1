"""Knowledge and reasoning: text in, diagnoses out. No disk, network, clock, Slack or database in here."""
