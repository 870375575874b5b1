"""The figures of a week."""
