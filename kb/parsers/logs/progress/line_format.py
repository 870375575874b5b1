"""A format of iteration line: how it is detected, found and read."""

from __future__ import annotations

import re
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from kb.model import ProgressPoint
from kb.regex.lazy import lazy_compile
from kb.values import dataclass

_FIELDS = {name: place for place, name in enumerate(ProgressPoint.__dataclass_fields__)}
_ALL = attrgetter(*_FIELDS)
Read = Callable[[re.Match[bytes]], ProgressPoint | None]
BEFORE = 1024  # bytes read before the head …
AFTER = 2048  # … and after it


@dataclass(frozen=True, slots=True)
class ProgressFormat:
    """How one format of iteration line is detected, found and read.

    `detector`: a safe-subset regex that detects blocks with these lines. `find`: starts with the literal `head`, never
    crosses a line and is linear. `read`: returns the point, with the match's start as its offset, or None for a false
    match.
    """

    name: str
    detector: str
    head: bytes
    find: re.Pattern[bytes]
    read: Read


REST_OF_LINE = rb"[^\r\n]{0,1500}"
_COLOURS = lazy_compile(rb"\x1b\[[0-9;]{0,20}[A-Za-z]")


def line_around(match: re.Match[bytes]) -> tuple[bytes, bytes]:
    """Return the line before and from the match, bounded, without color codes; a carriage return ends a line, too."""
    start, text = match.start(), match.string
    if len(text) <= BEFORE and not (b"\n" in text or b"\r" in text or b"\x1b" in text):  # a line, as it mostly is
        return bytes(text[:start]), bytes(text[start:])
    before = bytes(text[max(0, start - BEFORE) : start])
    after = bytes(text[start : start + AFTER])
    before = before[max(before.rfind(b"\n"), before.rfind(b"\r")) + 1 :]
    ends = [end for end in (after.find(b"\n"), after.find(b"\r")) if end >= 0]
    after = after[: min(ends)] if ends else after
    if b"\x1b" in before or b"\x1b" in after:
        return _COLOURS.sub(b"", before), _COLOURS.sub(b"", after)
    return before, after


def changed(point: ProgressPoint, **values: Any) -> ProgressPoint:
    """Return the point with other values; several times as fast as dataclasses.replace, for use on every line."""
    fields = list(_ALL(point))
    for name, value in values.items():
        fields[_FIELDS[name]] = value
    return ProgressPoint(*fields)


def optional_group(match: re.Match[bytes], group: str) -> bytes | None:
    """Return a group of the match, or None if the pattern does not have it."""
    return match[group] if group in match.re.groupindex else None


def make_format(name: str, detector: str, head: bytes, tail: bytes, read: Read) -> ProgressFormat:
    """Build a format whose `find` is the literal head followed by the regex `tail`."""
    return ProgressFormat(name, detector, head, lazy_compile(re.escape(head) + tail), read)
