"""Chooses the lines of a large block that each search needs: one pass of Hyperscan with the marks of all of them at once.

A small text, or a block where Hyperscan is not installed, is searched whole, with the same results.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from bot.runtime.redaction.search import Search, Span

SMALL = 8 << 10  # bytes: below it, searching is faster than choosing
_BREAK_EVEN = 48 << 10  # bytes of large blocks: searching dense logs of this size takes as long as compiling the marks

Scan = Callable[[bytes], dict[int, list[int]]]


class Chooser:
    """The compiled marks of a sequence of searches, shared between threads.

    They are compiled when that pays: a command that masks one passage of a log ends before.
    """

    def __init__(self, searches: Sequence[Search]) -> None:
        self._searches = searches
        self._lock = threading.Lock()
        self._scan: Scan | None = None
        self._ready = False
        self._seen = 0  # bytes of large blocks

    def ready(self, size: int) -> bool:
        """Whether there is an engine to choose with, and large blocks enough, with one of this size, to compile for."""
        with self._lock:
            self._seen += size
            early = self._seen < _BREAK_EVEN
        return not early and self._scanner() is not None

    def areas(self, block: bytes) -> Iterator[tuple[Search, Area]]:
        """Return the text that each search needs, for the searches that have marks in the block."""
        scan = self._scanner()
        found = scan(block) if scan else {}
        return (
            (search, Area(block, ends, search.after, search.before))
            for n, ends in found.items()
            if (search := self._searches[n])
        )

    def _scanner(self) -> Scan | None:
        with self._lock:
            if not self._ready:
                self._scan, self._ready = _compiled(self._searches), True
            return self._scan


def _compiled(searches: Sequence[Search]) -> Scan | None:
    try:
        import hyperscan  # noqa: PLC0415 - only for large blocks, and not everywhere
    except ImportError:
        return None
    marks = [(mark, n, search.cased) for n, search in enumerate(searches) for mark in search.marks]
    caseless = hyperscan.HS_FLAG_CASELESS | hyperscan.HS_FLAG_MULTILINE
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    database.compile(
        expressions=[mark for mark, _, _ in marks],
        ids=[n for _, n, _ in marks],
        elements=len(marks),
        flags=[hyperscan.HS_FLAG_MULTILINE if cased else caseless for _, _, cased in marks],
    )
    local = threading.local()

    def scan(block: bytes) -> dict[int, list[int]]:
        scratch: Any = getattr(local, "scratch", None)
        if scratch is None:
            scratch = local.scratch = hyperscan.Scratch(database)  # one per thread
        found: dict[int, list[int]] = {}

        def on_match(search: int, _start: int, end: int, _flags: int, _context: object) -> None:
            if search in found:
                found[search].append(end)
            else:
                found[search] = [end]

        database.scan(block, match_event_handler=on_match, scratch=scratch)
        return found

    return scan


class Area:
    """The lines of a block around the ends of marks, as one text, and the way back to the block."""

    def __init__(self, block: bytes, ends: Iterable[int], after: int, before: int = 0) -> None:
        parts = _lines(block, ends, after, before)
        self._starts: list[int] = []
        self._sources: list[int] = []
        at = 0
        for start, end in parts:
            self._starts.append(at)
            self._sources.append(start)
            at += end - start + 1
        # Parts are whole lines without their last line end; the one put between them has its place.
        self.text = b"\n".join(block[start:end] for start, end in parts)

    def in_block(self, spans: Iterable[Span]) -> Iterator[Span]:
        """Return spans of the text as spans of the block."""
        for start, end in spans:
            place = bisect_right(self._starts, start) - 1
            by = self._sources[place] - self._starts[place]
            yield start + by, end + by


def _lines(block: bytes, ends: Iterable[int], after: int, before: int) -> list[Span]:
    """Return the lines in which marks end, each with the lines around it, sorted and merged, without the last line end."""
    areas: list[Span] = []
    covered = -1  # the end of the last line of a mark
    for end in sorted(ends):
        if end - 1 <= covered:
            continue
        start = block.rfind(b"\n", 0, end - 1) + 1
        stop = covered = _line_end(block, max(start, end - 1))
        for _ in range(before):
            start = block.rfind(b"\n", 0, max(0, start - 1)) + 1
        for _ in range(after):
            stop = _line_end(block, stop + 1) if stop < len(block) else stop
        if areas and start <= areas[-1][1] + 1:
            areas[-1] = (min(start, areas[-1][0]), max(stop, areas[-1][1]))
        else:
            areas.append((start, stop))
    return areas


def _line_end(block: bytes, place: int) -> int:
    end = block.find(b"\n", place)
    return len(block) if end < 0 else end
