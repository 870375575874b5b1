"""Parsers of log lines: prefixes, timestamps, progress, exceptions, launchers, kernel messages, and the registry of them."""
