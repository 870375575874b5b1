"""Key text between the marks of a private key, or next to one of them if the other is cut off."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bot.runtime.redaction.search import Span
from kb.regex.lazy import lazy_compile

MARKS = (b"PRIVATE KEY", b"OpenVPN Static key")
_MARK = lazy_compile(rb"-----(BEGIN|END)[A-Z0-9 ]{0,40}(?:PRIVATE KEY(?: BLOCK)?|OpenVPN Static key V[0-9])-----")
_REACH = 16384  # bytes; an RSA key of 8192 bits with log prefixes is below it
# Key text may stand in a JSON string, where the newlines are `\n`: the escape stays whole.
_RUN = lazy_compile(rb"(?:\\[nrt])?([A-Za-z0-9+/=]{8,})")
_LINE = lazy_compile(rb"(?:\\[nrt])?([A-Za-z0-9+/=]{40,})")


def spans(text: bytes) -> Iterator[Span]:
    """Return the spans of the key text.

    With both marks, every run of key characters counts. With one, only lines as long as key lines count: what follows may be
    ordinary text.
    """
    if not any(mark in text for mark in MARKS):
        return
    opened: int | None = None
    closed = 0
    for mark in _MARK.finditer(text):
        if mark[1] == b"BEGIN":
            if opened is not None:
                yield from _runs(_LINE, text, opened, min(opened + _REACH, mark.start()))
            opened = mark.end()
            continue
        near = opened is not None and mark.start() - opened <= _REACH
        start = opened if near and opened is not None else max(closed, mark.start() - _REACH)
        yield from _runs(_RUN if near else _LINE, text, start, mark.start())
        opened, closed = None, mark.end()
    if opened is not None:
        yield from _runs(_LINE, text, opened, opened + _REACH)


def _runs(pattern: re.Pattern[bytes], text: bytes, start: int, end: int) -> Iterator[Span]:
    for run in pattern.finditer(text, start, end):
        yield run.span(1)
