"""Regexes that people write, in bounded time: parsed, judged, and run by an engine whose cost cannot explode."""
