"""Services that every other package may use: redaction, logging, metrics, paths, errors, git, sandbox. Imports none of them."""
