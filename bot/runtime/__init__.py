"""What every part may use and that knows none of them: redaction, logging, metrics, paths, errors, git, sandbox."""
