"""Finds the message of a line in JSON or logfmt, and where its bytes stand in the line.

Everything here is a function of the folded line (kb.templates.masking), and gives positions in it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence

Range = tuple[int, int]

_JSON = re.compile(rb"\"(?:msg|message|short_message|MESSAGE|log|event|text)\": ?\"((?:[^\"\\\n]|\\.){1,900})")
_ANY_JSON = re.compile(rb"\": ?\"((?:[^\"\\\n]|\\.){1,900})")
_ESCAPED = re.compile(rb"\\([\"\\/])")
_AT_RANK = re.compile(rb"^\[rank0{1,6}\]: ?")
_JSON_OF = re.compile(rb"\"(?:component|logger|name|module)\": ?\"([^\"\n]{1,60})\"")
_LOGFMT = re.compile(rb"(?<![^ ])msg=(?:\"((?:[^\"\\\n]|\\.){1,900})|(\S{1,400}))")
_LOGFMT_OF = re.compile(rb"(?<=[ ])(?:mod|component|logger|module)=([^\s\"]{1,60})")


def quoted(line: bytes, start: int) -> Range | None:
    """Where the message of a JSON object stands."""
    if not line.startswith(b"{", start):
        return None
    message = _JSON.search(line, start) or _longest(line, start)
    return None if message is None else message.span(1)


def message_of(line: bytes) -> bytes:
    """The message of a line in JSON, or else the line."""
    found = quoted(line, 0)
    return line if found is None else line[slice(*found)]


def logfmt(line: bytes) -> bytes | None:
    """The message of a line in logfmt, after the name of the component that wrote it."""
    message = _LOGFMT.search(line) if b"msg=" in line else None
    if message is None:
        return None
    named = _LOGFMT_OF.search(line)
    told = _AT_RANK.sub(b"", message[message.lastindex or 0])
    return told if named is None else named[1] + b": " + told


def unescaped(message: bytes) -> tuple[bytes, Sequence[int]]:
    """The beginning of a JSON string as it was before it was quoted, and where backslashes were removed."""
    found = [match.start() for match in _ESCAPED.finditer(message)]
    return _ESCAPED.sub(rb"\1", message), [place - number for number, place in enumerate(found)]


def place_of(place: int, at: int, places: Sequence[int]) -> int:
    """Where a byte of a message that was quoted is in its line. `at`: where the message begins."""
    return at + place + bisect_left(places, place)


def component(line: bytes) -> bytes | None:
    """The component that wrote a JSON line."""
    match = _JSON_OF.search(line)
    return None if match is None else match[1]


def _longest(line: bytes, start: int) -> re.Match[bytes] | None:
    """The longest text of several words in a JSON object: its message, under whatever key."""
    found = (match for match in _ANY_JSON.finditer(line, start) if b" " in match[1])
    return max(found, key=lambda match: len(match[1]), default=None)
