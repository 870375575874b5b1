"""Parsing of formats: bytes in, values out. Each module reads one family of formats and knows nothing of rules."""
