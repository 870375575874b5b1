"""Excerpts of logs that are too large to fetch: the beginning, the end, and the lines that rules look for in between.

A line marks how many bytes were omitted. Input and output are blocks of whole lines.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

LINES_BEFORE, LINES_AFTER = 10, 40  # context around a line that rules look for
LONGEST_LINE = 1 << 20
BLOCK = 2 << 20
_LEAST = 64 << 10  # bytes read to complete a line
_WRITE = 1 << 20
_WINDOW = 4096


@dataclass(slots=True)
class Excerpt:
    """The kept parts of one log, passed on in order. `left_out`: the number of omitted bytes."""

    write: Callable[[bytes], None]
    left_out: int = 0
    kept: int = 0
    _pending: int = 0
    _buffer: bytes = b""

    def keep(self, lines: bytes, *, marked: bool = True) -> None:
        """Keep whole lines. If not `marked`, the omission before them is reported with the next kept lines."""
        if not lines:
            return
        if self._pending and marked:
            self._buffer += b"[signalbox: about %d bytes of this log are left out here]\n" % self._pending
            self._pending = 0
        self._buffer += lines
        self.kept += len(lines)
        if len(self._buffer) >= _WRITE:
            self._flush()

    def skip(self, size: int) -> None:
        """Omit bytes."""
        if size > 0:
            self._pending += size
            self.left_out += size

    def close(self) -> None:
        """Pass on what is buffered."""
        if self._pending:
            self._buffer += b"[signalbox: about %d bytes of this log are left out here]\n" % self._pending
            self._pending = 0
        self._flush()

    def _flush(self) -> None:
        if self._buffer:
            lines, self._buffer = self._buffer, b""
            self.write(lines)


class LineFilter:
    """Finds lines with any of the words, ignoring case, and samples lines with any of the `sampled` words."""

    def __init__(self, words: Sequence[str], sampled: Sequence[str] = ()) -> None:
        self._lock = threading.Lock()
        self._telling = _database(words, once=False)
        self._sampled = _database(sampled, once=True)

    def pass_on(self, block: bytes, excerpt: Excerpt, room: int, every: int) -> None:
        """Pass the matching lines of a block, with their context, to the excerpt; at most `room` bytes.

        `every`: bytes per sampled line.
        """
        done = 0
        for start, stop, telling in self._spans(block, every):
            if stop - start > room:
                break
            excerpt.skip(start - done)
            excerpt.keep(block[start:stop], marked=telling)
            room -= stop - start
            done = stop
        excerpt.skip(len(block) - done)

    def _spans(self, block: bytes, every: int) -> Iterator[tuple[int, int, bool]]:
        """Yield the spans of whole lines to keep, in order and without overlap; the flag tells whether a rule needs the span."""
        end = 0
        for start, stop in self._wanted(block):
            yield from self._samples(block, end, start, every)
            yield start, stop, True
            end = stop
        yield from self._samples(block, end, len(block), every)

    def _wanted(self, block: bytes) -> list[tuple[int, int]]:
        """Spans around matching lines."""
        spans: list[tuple[int, int]] = []
        line = 0
        for at in sorted(self._hits(self._telling, block)):
            if at < line:
                continue  # within a line that was handled already
            line = _line_end(block, at)
            start, stop = _before(block, at), _after(block, at)
            if spans and start <= spans[-1][1]:
                spans[-1] = (spans[-1][0], stop)
            else:
                spans.append((start, stop))
        return spans

    def _samples(self, block: bytes, start: int, stop: int, every: int) -> Iterator[tuple[int, int, bool]]:
        while start < stop:
            end = min(stop, _line_end(block, min(start + max(every, _WINDOW), stop) - 1))
            hits = self._hits(self._sampled, block[start:end])
            if hits:
                at = start + min(hits)
                yield block.rfind(b"\n", start, at) + 1 or start, min(end, _line_end(block, at)), False
            start = end

    def _hits(self, database: Any, block: bytes) -> list[int]:
        found: list[int] = []
        if database is not None and block:
            with self._lock:  # only memory and CPU: nothing in here waits for a disk
                database.scan(
                    block, match_event_handler=lambda _id, _start, end, _flags, _context: found.append(end - 1)
                )
        return found


def _database(words: Sequence[str], *, once: bool) -> Any:
    if not words:
        return None
    import hyperscan  # noqa: PLC0415 - only where a log is too large

    flags = hyperscan.HS_FLAG_CASELESS | (hyperscan.HS_FLAG_SINGLEMATCH if once else 0)
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    literals = [re.escape(word).encode() for word in words]
    database.compile(
        expressions=literals, ids=range(len(literals)), elements=len(literals), flags=[flags] * len(literals)
    )
    return database


def _line_end(block: bytes, at: int) -> int:
    return (block.find(b"\n", at) + 1) or len(block)


def _before(block: bytes, at: int) -> int:
    for _ in range(LINES_BEFORE + 1):
        at = block.rfind(b"\n", 0, max(0, at))
        if at < 0:
            return 0
    return at + 1


def _after(block: bytes, at: int) -> int:
    for _ in range(LINES_AFTER + 1):
        at = _line_end(block, at)
        if at >= len(block):
            return len(block)
    return at


class LineReader:
    """Reads blocks of whole lines. A line without an end, or an extremely long one, is given an end."""

    def __init__(self, read: Callable[[int], bytes], at: int = 0) -> None:
        self.at = at  # bytes returned or skipped
        self._read = read
        self._rest = b""

    def blocks(self, until: int) -> Iterator[bytes]:
        """Yield blocks up to this byte and to the end of its line."""
        while self.at < until:
            block = self._read(min(BLOCK, max(_LEAST, until - self.at - len(self._rest))))
            text = self._rest + block
            cut = len(text) if not block else text.rfind(b"\n") + 1
            if not cut and len(text) > LONGEST_LINE:
                cut = text.rfind(b"\r") + 1 or len(text)
            if cut > until - self.at:  # no further than to the end of the wanted line
                cut = text.find(b"\n", until - self.at - 1) + 1 or cut
            whole, self._rest = text[:cut], text[cut:]
            self.at += len(whole)
            if whole:
                yield whole if whole.endswith(b"\n") else whole + b"\n"
            if not block and not self._rest:
                return

    def to_line_start(self) -> int:
        """Skip the rest of a line, and return the number of skipped bytes."""
        text = self._rest + self._read(_LEAST)
        cut = text.find(b"\n") + 1
        self._rest = text[cut:]
        self.at += cut
        return cut
