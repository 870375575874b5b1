"""One pass over log bytes for all patterns: the plan, the scanner, the matcher, and the bounded summary it leaves."""
