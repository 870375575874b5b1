"""Parsers: bytes in, values out. Each module reads one family of formats and is independent of rules."""
