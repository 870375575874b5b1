"""What the comparisons of a run share: the run as a value, words of severity, clocks of nodes against each other."""
