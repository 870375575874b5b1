"""Walking a window of bytes line by line, and making structures of what was found. Shared by the readers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kb.model import Resource, Scalar, Structure
from kb.parsers.logs.prefixes import Prefix, peel
from kb.regex.lazy import lazy_compile

LINE_CHARACTERS = 512  # of a decisive line, kept in a structure
MAX_LINE = 4096  # bytes of one line that are looked at; more is never a part of a known form
_ANSI = lazy_compile(rb"\x1b\[[0-9;?]{0,16}[A-Za-z]")


def line_at(window: bytes, start: int) -> tuple[bytes, int]:
    """Return the line that starts at `start`, without its end and cut to MAX_LINE, and the index behind it."""
    stop = window.find(b"\n", start)
    end = len(window) if stop < 0 else stop
    line = window[start : min(end, start + MAX_LINE)]
    return line.rstrip(b"\r"), len(window) if stop < 0 else stop + 1


def lines_from(window: bytes, start: int, most: int) -> Iterator[tuple[int, int, bytes]]:
    """At most `most` lines from `start` on, as (start, index behind, line)."""
    for _ in range(most):
        if start >= len(window):
            return
        line, after = line_at(window, start)
        yield start, after, line
        start = after


def line_start(window: bytes, index: int) -> int:
    """Return where the line with the byte at `index` starts."""
    return window.rfind(b"\n", 0, index) + 1


def plain(line: bytes) -> bytes:
    """Return the line without colour codes."""
    return _ANSI.sub(b"", line) if b"\x1b" in line else line


def text(raw: bytes | None, most: int = LINE_CHARACTERS) -> str:
    """Decoded, with broken bytes replaced, cut to `most` characters; None is empty."""
    return "" if raw is None else raw[: 4 * most].decode("utf-8", errors="replace")[:most].strip()


def number(raw: bytes | None) -> int | None:
    """Return a decimal number of at most 18 digits, or None."""
    digits = raw.strip() if raw is not None else b""
    bare = digits[1:] if digits[:1] in (b"-", b"+") else digits
    return int(digits) if bare.isdigit() and len(bare) <= 18 else None


def resource(prefix: Prefix, *, node: str | None = None, rank: int | None = None, pid: int | None = None) -> Resource:
    """Who spoke, from the line's prefix; what the line itself says of node, rank and pid goes first."""
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
    """Return the structure whose decisive line starts at `start`; None and empty fields are left out.

    `end` is the index behind its last line, where it has more than one; `who` goes before the line's own prefix.
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
