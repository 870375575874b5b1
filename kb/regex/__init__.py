"""Regexes: those that people write, parsed, judged and run in bounded time, and those of modules, compiled at their first use."""
