"""What every connector must do when its system misbehaves: one suite, a hostile server in front of each system's double."""
