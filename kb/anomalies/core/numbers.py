"""The numbers of log lines, without those of times, addresses and process ids."""

from __future__ import annotations

import re

from kb.anomalies.core.stamps import STAMPS

_TIMED_BY_NAME = re.compile(
    r"(?i)(?:^|[^a-z])(?:m?s|u?sec|secs|seconds|time|took|dur(?:ation)?|latency|elapsed|wait(?:ed|ing)?)[^a-z0-9]{0,4}$"
)
_TIMED_BY_UNIT = re.compile(r" ?(?:s|ms|us|secs?|seconds|min|minutes)\b(?![/=:])")
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\w.]*\d)")


def numbers_in(line: str) -> list[float]:
    """The numbers of a line in order, without times, addresses and process ids."""
    return [float(number) for number in _NUMBER.findall(STAMPS.sub(" ", line))]


def number_ends(line: str) -> list[int]:
    """Where the numbers of `numbers_in` end, in the line with a blank in place of each time, address and process id."""
    return [match.end() for match in _NUMBER.finditer(STAMPS.sub(" ", line))]


def is_duration(line: str, place: int) -> bool:
    """Whether the number at a place of `numbers_in` is a time that something took, by its name or its unit."""
    text = STAMPS.sub(" ", line)
    found = [match.span() for match in _NUMBER.finditer(text)][place : place + 1]
    return any(_TIMED_BY_NAME.search(text[:start]) or _TIMED_BY_UNIT.match(text, end) for start, end in found)
