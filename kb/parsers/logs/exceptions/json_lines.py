"""Tracebacks and exceptions inside the strings of a JSON line or of a `repr`, where line breaks are escaped."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from kb.parsers.logs.error_lines import error_level
from kb.parsers.logs.exceptions.exception_line import HEADER
from kb.regex.lazy import lazy_compile

MAX_STRING = 48 * 1024  # bytes of a string that are read
MAX_TRACEBACKS = 16  # in one string, each a link of a chain
MAX_ABOVE = 6  # lines between an object's start and the member that names the error
_BROKEN = HEADER + b':\\n  File "'  # the start of one in Python's `repr`, which does not escape these quotes
_MEMBER = lazy_compile(rb'\s{1,16}"[\w.-]{1,60}" ?: ?["{]')
_FAILURE = lazy_compile(rb'\s{1,16}"(?:message|error|exception|reason)" ?: ?"(.*?)"?,?\s*$')


def tracebacks_in(window: bytes, at: int) -> Iterator[tuple[int, bytes, int]]:
    """Yield the tracebacks in the strings of the line at `at`.

    Each as the position of its header in the window, the unescaped string, and the header's position in that string.
    """
    stop = window.find(b"\n", at)
    line = window[at : min(len(window) if stop < 0 else stop, at + MAX_STRING)]
    column = -1
    for _ in range(MAX_TRACEBACKS):
        column = line.find(HEADER, column + 1)
        if column < 0:
            return
        start, end = (column, len(line)) if in_repr(line, column) else _string_around(line, column)
        told, inside = unescaped(line[start:end]), -1
        for _ in range(line.count(HEADER, start, column) + 1):
            inside = told.find(HEADER, inside + 1)
        if inside >= 0:
            yield at + column, told, told.rfind(b"\n", 0, inside) + 1


def in_repr(line: bytes, column: int) -> bool:
    """Whether the traceback whose header is at `column` is in a string as Python's `repr` writes it."""
    return line.startswith(_BROKEN, column)


def is_member(line: bytes) -> bool:
    """Whether a line, without its prefixes, is a member of a JSON object that is printed over several lines."""
    return line[:1].isspace() and line.lstrip()[:1] == b'"' and _MEMBER.match(line) is not None


def failure_in_member(line: bytes, above: Sequence[tuple[int, bytes]]) -> tuple[bytes, int] | None:
    """Return the text of a member that names an error, unescaped, and where the error line that opens its object starts.

    None for all other lines. `above`: the starts and texts of the lines above it, the nearest first. torchrun's workers
    print their failures in this form.
    """
    found = _FAILURE.match(line)
    if found is None:
        return None
    for start, earlier in above[:MAX_ABOVE]:
        if earlier.rstrip().endswith(b"{") and not is_member(earlier):
            return (unescaped(found[1]), start) if error_level(earlier) is not None else None
        if not is_member(earlier):
            return None
    return None


def is_json(line: bytes) -> bool:
    """Whether a line, without its prefixes, is a JSON object."""
    return line.lstrip().startswith(b'{"')


def unescaped(raw: bytes) -> bytes:
    """Return the text of a JSON string without its quotes, which may be cut."""
    try:
        return str(json.loads(b'"' + raw + b'"', strict=False)).encode("utf-8", "replace")
    except ValueError:
        for escape, meant in ((b"\\n", b"\n"), (b"\\t", b"\t"), (b'\\"', b'"'), (b"\\'", b"'"), (b"\\\\", b"\\")):
            raw = raw.replace(escape, meant)
        return raw


def _string_around(line: bytes, column: int) -> tuple[int, int]:
    """Return where the string around a place starts and ends, without its quotes."""
    start = column
    while (start := line.rfind(b'"', 0, start)) >= 0 and _escaped(line, start):
        pass
    end = column
    while (end := line.find(b'"', end)) >= 0 and _escaped(line, end):
        end += 1
    return start + 1, end if end >= 0 else len(line)


def _escaped(line: bytes, quote: int) -> bool:
    """Whether a quote follows an odd number of backslashes."""
    before = line[max(0, quote - 64) : quote]
    return (len(before) - len(before.rstrip(b"\\"))) % 2 == 1
