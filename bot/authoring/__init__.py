"""Tools for rule authors: scaffold, self-test, lock file, generated docs, diff, statistics, accuracy on cases."""
