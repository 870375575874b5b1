"""Tools for who writes rules: scaffold, self-test, lock file, generated docs, diff, statistics, accuracy on cases."""
