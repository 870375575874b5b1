"""Measures each log's volume over time, by sampling the files again: scan summaries are too coarse for a timeline.

Bounded for any number and size of logs. A log of one rank is bisected where two known timestamps are far apart; a log
of several ranks is read in whole blocks, since its lines name their writers. Unreadable files are skipped.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from connectors.bundles.streams import StreamReader, is_plain
from kb.facts.evidence import Evidence
from kb.model import Resource, StreamRef
from kb.parsers.logs.prefixes import peel
from kb.parsers.logs.structured import rank_of, stamp_of
from kb.parsers.logs.timestamps import HEAD, find_time
from kb.scanning.summary import StreamSummary
from kb.timeline.picture import COLUMNS
from kb.timeline.rows import CLOSE, Span, StreamActivity, Voice, is_log, known_stamps, shared

READS = 20_000  # of all logs of one rank together
MOST, LEAST = 64, 6  # reads of one log; with less budget, only the summary is used
BLOCK = 4096
SPOKEN = 8 << 20  # bytes of all logs of several ranks together
PIECES = 64  # blocks of one such log
PACKED = 16 << 20  # bytes of text of all packed logs together
SAMPLE = 6  # lines of a block whose timestamps are read
LOOKED = 512  # bytes of a line that contain timestamp and writer
SPEAKERS = 20_000


def listen(evidence: Evidence, root: Path | None, span: Span) -> dict[int, StreamActivity]:
    """Return log index → its activity in the span. `root`: the folder to which log names are relative."""
    logs = [(index, item) for index, item in enumerate(evidence.streams) if is_log(item) and item.last_time is not None]
    several = [(index, item) for index, item in logs if shared(item)]
    single = [(index, item) for index, item in logs if not shared(item)]
    reads = min(MOST, READS // max(1, len(single)))
    share, room = SPOKEN // max(1, len(several)), PACKED
    found: dict[int, StreamActivity] = {}
    for index, item in logs:
        ref = StreamRef(str(root / item.ref.uri if root else Path(item.ref.uri)), item.ref.resource)
        with suppress(OSError, ValueError):  # the name may not be a valid file name
            if is_plain(ref):
                if shared(item):
                    found[index] = _several(ref, item, span, share)
                elif reads >= LEAST:
                    found[index] = StreamActivity(_halved(ref, item, span, reads))
            elif item.size <= room:
                room -= item.size
                found[index] = _packed(ref, item, span)
    return found


def _year(summary: StreamSummary) -> int | None:
    with suppress(ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(summary.last_time or 0.0, UTC).year
    return None


class _StampedLine(NamedTuple):
    time: float | None
    who: Resource | None


def _line(line: bytes, year: int | None) -> _StampedLine:
    """Return a line's time, and its writer if known."""
    head = line[:LOOKED]
    if head.startswith(b"{") and (time := stamp_of(line[: 8 * LOOKED])) is not None:
        rank = rank_of(line[: 8 * LOOKED])
        return _StampedLine(time, None if rank is None else Resource(rank=rank))
    prefix = peel(head, year)
    time = prefix.time if prefix.time is not None else find_time(head[prefix.end : prefix.end + HEAD], year)
    speaks = prefix.rank is not None or prefix.local_rank is not None
    return _StampedLine(
        time, Resource(node=prefix.node, rank=prefix.rank, local_rank=prefix.local_rank) if speaks else None
    )


# -- logs of one rank ----------------------------------------------------------------------------------------------------


def _halved(ref: StreamRef, summary: StreamSummary, span: Span, reads: int) -> tuple[tuple[int, float], ...]:
    """Return a log's timestamps, with further ones read where the known ones leave gaps."""
    year, column = _year(summary), (span[1] - span[0]) / COLUMNS
    found: dict[int, float] = {}
    heap: list[tuple[float, int, float, int, float]] = []

    def leave_open(stamps: Iterable[tuple[int, float]], most: int) -> None:
        for (begin, time), (end, later) in pairwise(stamps):
            unknown = min(later, span[1]) - max(time, span[0])
            if unknown > column and CLOSE < end - begin < most:
                heapq.heappush(heap, (-unknown, begin, time, end, later))

    leave_open(sorted(known_stamps(summary)), summary.size + 1)
    with Path(ref.uri).open("rb") as handle:
        while heap and reads:
            _, begin, time, end, later = heapq.heappop(heap)
            reads -= 1
            size = min(BLOCK, end - begin)
            at = (begin + end - size) // 2
            seen = _stamps_in(os.pread(handle.fileno(), size, at), at, year)
            found.update(seen)
            if not seen and size == end - begin:  # written at once, or without timestamps
                found[end - 1] = time
            leave_open(((begin, time), *seen, (end, later)), end - begin)
    return tuple(sorted(found.items()))


def _stamps_in(block: bytes, offset: int, year: int | None) -> list[tuple[int, float]]:
    """Return (offset, time) of a few evenly spaced lines of a block, including the first and last with a timestamp."""
    cut = block.find(b"\n") + 1
    lines = list(_lines(block[cut:], offset + cut))
    every = max(1, len(lines) // SAMPLE)
    first = next(((at, time) for at, line in lines if (time := _line(line, year).time) is not None), None)
    last = next(((at, time) for at, line in reversed(lines) if (time := _line(line, year).time) is not None), None)
    some = ((at, time) for at, line in lines[every:-1:every] if (time := _line(line, year).time) is not None)
    return [] if first is None or last is None else sorted({first, *some, last})


def _lines(block: bytes, offset: int) -> Iterator[tuple[int, bytes]]:
    for line in block.split(b"\n"):
        if line:
            yield offset, line
        offset += len(line) + 1


# -- logs of several ranks -----------------------------------------------------------------------------------------------


class _ActivityCounter:
    """Counts each writer's bytes per column of the span, line by line."""

    def __init__(self, span: Span, year: int | None) -> None:
        self._span, self._year = span, year
        self._said: dict[Resource, dict[int, int]] = {}
        self._last: dict[Resource, float] = {}
        self._time: float | None = None
        self.stamps: list[tuple[int, float]] = []

    def take(self, block: bytes, offset: int) -> None:
        """Add consecutive whole lines; a line without a timestamp has the time of the previous one."""
        self._time = None
        stamped = -BLOCK
        for at, line in _lines(block, offset):
            parsed = _line(line, self._year)
            if parsed.time is not None:
                self._time = parsed.time
                if at - stamped >= BLOCK:
                    self.stamps.append((at, parsed.time))
                    stamped = at
            if self._time is None:
                continue
            who = parsed.who or Resource()
            if who not in self._said and len(self._said) >= SPEAKERS:
                continue
            self._last[who] = max(self._last.get(who, self._time), self._time)
            start, end = self._span
            if start <= self._time <= end:
                column = int((self._time - start) / (end - start) * COLUMNS)
                cells = self._said.setdefault(who, {})
                cells[column] = cells.get(column, 0) + len(line) + 1

    def heard(self) -> StreamActivity:
        """Return the activity of all writers."""
        start, end = self._span
        width = (end - start) / COLUMNS
        voices = (
            Voice(
                who,
                tuple((min(end, start + (column + 0.5) * width), size) for column, size in cells.items()),
                self._last[who],
            )
            for who, cells in ((who, self._said.get(who, {})) for who in self._last)
        )
        ordered = sorted(voices, key=lambda voice: repr(voice.who))
        return StreamActivity(tuple(self.stamps), tuple(ordered))


def _several(ref: StreamRef, summary: StreamSummary, span: Span, share: int) -> StreamActivity:
    """Yield blocks of a log within the span: all of it if small, and always its end."""
    begin = _offset_of(span[0], (*known_stamps(summary), *_halved(ref, summary, span, 2 * MOST)))
    voices = _ActivityCounter(span, _year(summary))
    rest = summary.size - begin
    cuts = [(begin, summary.size)]
    if rest > share:
        piece = share // PIECES
        cuts = [(begin + at * (rest - piece) // (PIECES - 1), piece) for at in range(PIECES)]
        cuts = [(at, at + size) for at, size in cuts]
    with Path(ref.uri).open("rb") as handle:
        for at, stop in cuts:
            block = os.pread(handle.fileno(), stop - at, at)
            cut = block.find(b"\n") + 1 if at else 0
            voices.take(block[cut:], at + cut)
    return voices.heard()


def _offset_of(start: float, stamps: Sequence[tuple[int, float]]) -> int:
    """Return the offset of the first line that is not older than a time, as far as timestamps show."""
    return max((offset for offset, time in stamps if time < start), default=0)


def _packed(ref: StreamRef, summary: StreamSummary, span: Span) -> StreamActivity:
    """Decompress a packed log again, since it cannot be sampled."""
    voices = _ActivityCounter(span, _year(summary))
    rest, at = b"", 0
    for block in StreamReader(ref):
        text = rest + block
        cut = text.rfind(b"\n") + 1
        voices.take(text[:cut], at)
        at, rest = at + cut, text[cut:]
        if at > 2 * PACKED:  # the file has changed
            break
    voices.take(rest, at)
    heard = voices.heard()
    return heard if shared(summary) else StreamActivity(heard.stamps)
