"""Where the patterns of rules are found in the facts of a job. Judges nothing."""
