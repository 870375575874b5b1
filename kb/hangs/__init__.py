"""Does a job hang, and where: probes and their vote, exonerations, pace, and late ranks."""
