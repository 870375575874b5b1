"""Helpers of the readers: walk over the lines of a window of bytes, and create structures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from kb.model import Resource, Scalar, Structure
from kb.parsers.logs.prefixes import Prefix, peel
from kb.regex.lazy import lazy_compile

LINE_CHARACTERS = 512  # of a decisive line, kept in a structure
MAX_LINE = 4096  # bytes of one line that are read; no known form is longer
_WITHIN_CHARACTER = bytes(range(0x80, 0xC0))  # the bytes of a UTF-8 character after its first
_ANSI = lazy_compile(rb"\x1b\[[0-9;?]{0,16}[A-Za-z]")


def line_at(window: bytes, start: int) -> tuple[bytes, int]:
    """Return the line that starts at `start`, without its newline and cut to MAX_LINE, and the index after it."""
    stop = window.find(b"\n", start)
    end = len(window) if stop < 0 else stop
    line = window[start : min(end, start + MAX_LINE)]
    return line.rstrip(b"\r"), len(window) if stop < 0 else stop + 1


def lines_from(window: bytes, start: int, most: int) -> Iterator[tuple[int, int, bytes]]:
    """Yield at most `most` lines from `start` on, as (start, index after it, line)."""
    for _ in range(most):
        if start >= len(window):
            return
        line, after = line_at(window, start)
        yield start, after, line
        start = after


def line_start(window: bytes, index: int) -> int:
    """Return the start of the line that contains the byte at `index`."""
    return window.rfind(b"\n", 0, index) + 1


def plain(line: bytes) -> bytes:
    """Return the line without colour codes."""
    return _ANSI.sub(b"", line) if b"\x1b" in line else line


def text(raw: bytes | None, most: int = LINE_CHARACTERS) -> str:
    """Decode, replacing invalid bytes, and cut to `most` characters; None becomes empty."""
    return "" if raw is None else raw[: 4 * most].decode("utf-8", errors="replace")[:most].strip()


def shown_part(line: bytes, at: int) -> bytes:
    """Return the part of a line to show: its start, or, if the byte at `at` is far from there, what surrounds that byte."""
    return line if at < LINE_CHARACTERS // 4 else line[at - LINE_CHARACTERS // 8 :].lstrip(_WITHIN_CHARACTER)


def utc_time(raw: bytes) -> float | None:
    """Return a date and time in ISO 8601, taken for UTC, as seconds since the epoch; None for any other text, or one that no calendar has."""
    try:
        return datetime.fromisoformat(raw.decode()).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def number(raw: bytes | None) -> int | None:
    """Return a decimal number of at most 18 digits, or None."""
    digits = raw.strip() if raw is not None else b""
    bare = digits[1:] if digits[:1] in (b"-", b"+") else digits
    return int(digits) if bare.isdigit() and len(bare) <= 18 else None


def resource(prefix: Prefix, *, node: str | None = None, rank: int | None = None, pid: int | None = None) -> Resource:
    """Return the writer from the line's prefix; node, rank and pid in the line itself take precedence."""
    return Resource(
        node=node or prefix.node,
        rank=prefix.rank if rank is None else rank,
        local_rank=prefix.local_rank,
        pid=prefix.pid if pid is None else pid,
    )


def on_line(
    kind: str,
    window: bytes,
    start: int,
    fields: Mapping[str, Scalar],
    *,
    end: int | None = None,
    who: Resource | None = None,
) -> Structure:
    """Return the structure whose decisive line starts at `start`; None and empty fields are omitted.

    `end`: the index after its last line, if it has several; `who` takes precedence over the line's prefix.
    """
    line, after = line_at(window, start)
    prefix = peel(line)
    return Structure(
        kind=kind,
        offset=start,
        end=after if end is None else end,
        line=text(plain(line)),
        fields={name: value for name, value in fields.items() if value is not None and value != ""},
        resource=who or resource(prefix),
        time=prefix.time,
    )
