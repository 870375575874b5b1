"""Knowledge and reasoning: text in, diagnoses out. Nothing here uses a disk, network, clock, Slack or database."""
