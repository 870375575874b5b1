"""The evidence of one job, as rules and detectors query it: `steps` and `log` for one log, the rest for the job as a whole."""
