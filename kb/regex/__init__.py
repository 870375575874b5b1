"""Parses, checks and runs people's regexes in bounded time, and compiles modules' regexes at their first use."""
