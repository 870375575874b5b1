"""Scans log bytes for all patterns in one pass: the plan, the scanner, the matcher, and the bounded summary."""
