"""The rule base on disk: found, loaded with its overlay, and reloaded while the service runs."""
