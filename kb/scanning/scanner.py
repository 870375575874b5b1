"""Reads a stream in blocks and keeps a bounded summary of it: call `feed(bytes)` repeatedly, then `finish()`.

Text stays a block of bytes; line, time, rank and captures are computed only for the few lines that are kept. A scanner
can read a shard of a stream: it *owns* the lines that start in its range and sees some context around them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache

from kb.model import StreamRef
from kb.parsers.logs.stages import STAGES
from kb.regex.lazy import lazy_compile
from kb.scanning.hit_collector import HitCollector
from kb.scanning.iteration_lines import IterationLines
from kb.scanning.limits import WHOLE, SummaryLimits
from kb.scanning.line_access import (
    LONGEST_LINE,
    add_owned,
    decode_in_size,
    first_time,
    line_at,
    owned_lines,
    time_of_line,
)
from kb.scanning.matcher import Matcher
from kb.scanning.plan import ScanPlan
from kb.scanning.quoted_lines import without_quote_marks
from kb.scanning.structure_collector import StructureCollector
from kb.scanning.summary import SHARED_TAIL, StageMark, StreamSummary, bounded_marks

WORK = 4 * 1024 * 1024  # bytes collected before a pass
BEFORE = 16 * 1024  # context kept before the bytes still to come
AFTER = 64 * 1024  # context required after a line before it is scanned
_DATED = lazy_compile(  # begins with a literal, which is found fast; the fraction of a second is no date
    rb"20\d\d(?:(?<=\d\d/\d\d/\d{4})(?=[ ,])|(?<![\d.]\d{4})(?:[-/](?:0[1-9]|1[0-2])[-/]|(?:0[1-9]|1[0-2]))(?:0[1-9]|[12]\d|3[01])(?!\d))"
)


def year_in(data: bytes) -> int | None:
    """Return the year of the first full date in the first MiB of some text."""
    dated = _DATED.search(data, 0, 1 << 20)
    return None if dated is None else int(dated[0][:4])


class Scanner:
    """Scans one stream, or the shard [own_start, own_stop) of it whose first fed byte lies at `origin`."""

    def __init__(
        self,
        plan: ScanPlan,
        matcher: Matcher,
        ref: StreamRef,
        *,
        origin: int = 0,
        own_start: int = 0,
        own_stop: int | None = None,
        year: int | None = None,
        limits: SummaryLimits = WHOLE,
        speaker: re.Pattern[bytes] | None = None,
    ) -> None:
        self._plan, self._matcher, self._ref, self._year = plan, matcher, ref, year
        self._once = plan.once
        self._base, self._next, self._stop = origin, own_start, own_stop
        self._chunks: list[bytes] = []
        self._waiting = 0
        self._end = origin
        self._own_start = own_start
        self._marks: list[StageMark] = []
        self._head = b""
        self._first_time: float | None = None
        self._tail: tuple[int, bytes] = (own_start, b"")
        self._speaker = speaker
        self._hits = HitCollector(plan, ref, speaker)
        self._structures = StructureCollector(ref, speaker)
        self._iterations = IterationLines(ref, limits, speaker)
        self._text = limits.text

    def feed(self, block: bytes, again: int = 0) -> None:
        """Process the next bytes of the stream. `again`: how many of the first bytes were passed before, for context.

        If that equals the number of bytes that the scanner keeps, nothing is copied.
        """
        self._end += len(block) - again
        if again and again >= self._waiting:
            self._chunks, self._waiting, self._base = [block], len(block), self._end - len(block)
        else:
            self._chunks.append(block[again:])
            self._waiting += len(block) - again
        if self._waiting >= WORK:
            self._work(final=False)

    def finish(self) -> StreamSummary:
        """Read the remaining bytes and return the summary."""
        self._work(final=True)
        stop = self._end if self._stop is None else min(self._stop, self._end)
        return StreamSummary(
            ref=self._ref,
            size=max(0, stop - self._own_start),
            hits=self._hits.collected(self._year),
            structures=self._structures.collected(self._year),
            series=self._iterations.series(self._year, stop if stop == self._end else None),
            marks=bounded_marks(self._marks),
            first_time=self._first_time,
            last_time=self._last_time(),
            head=decode_in_size(self._head),
            tail=decode_in_size(self._tail[1]),
            tail_offset=self._tail[0],
            speaker=self._speaker,
        )

    def _work(self, *, final: bool) -> None:
        data = b"".join(self._chunks)
        if b"\r" in data:
            data = data.replace(b"\r", b"\n")
        limit = self._base + len(data) - (0 if final else AFTER)
        if self._stop is not None:
            limit = min(limit, self._stop)
        if limit > self._next or final:
            self._block(without_quote_marks(data), limit)
            self._next = max(self._next, limit)
        keep = max(0, min(self._next, self._base + len(data)) - BEFORE - self._base)
        self._chunks = [data[keep:]]
        self._waiting = len(self._chunks[0])
        self._base += keep

    def _block(self, data: bytes, limit: int) -> None:
        base, low = self._base, self._next - self._base
        high = limit - base
        if self._year is None:
            self._year = year_in(data)
        if not self._head and low < len(data) and self._own_start == 0:
            self._head = data[: self._text]
            self._first_time = first_time(data[:LONGEST_LINE], self._year)
        if high > 0:
            start = max(0, high - (self._text if self._ref.resource.rank is not None else SHARED_TAIL))
            self._tail = (base + start, data[start:high])
        hits, known = self._matcher.lines(data)
        by_pattern, present = owned_lines(data, hits, low, high, self._once)
        if known:
            add_owned(by_pattern, present, known, low=low, high=high, once=self._once)
        for pattern, starts in by_pattern.items():
            for target in self._plan.targets[pattern]:
                if target.kind == "rule":
                    self._hits.add(target.index, data, starts, base, self._year)
                elif target.kind == "reader":
                    self._structures.add(target.index, data, starts, base, self._year)
                else:
                    self._stage(target.index, data, starts)
        if present:
            forms = sorted(target.index for pattern in present for target in self._plan.targets[pattern])
            self._iterations.add(forms, data, base, low, high)

    def _stage(self, index: int, data: bytes, starts: list[int]) -> None:
        stage, sure = STAGES[index][0], _stage_search(index)
        self._marks.extend(StageMark(self._base + start, stage) for start in starts if sure(line_at(data, start)))
        if len(self._marks) > 4096:
            self._marks = list(bounded_marks(self._marks))

    def _last_time(self) -> float | None:
        for line in reversed(self._tail[1].split(b"\n")[-200:]):
            if line and (time := time_of_line(line, self._year)) is not None:
                return time
        return self._first_time


def scan(
    plan: ScanPlan, matcher: Matcher, ref: StreamRef, blocks: Iterable[bytes], year: int | None = None
) -> StreamSummary:
    """Scan a whole stream given as blocks."""
    scanner = Scanner(plan, matcher, ref, year=year)
    for block in blocks:
        scanner.feed(block)
    return scanner.finish()


@lru_cache(maxsize=256)
def _stage_search(index: int) -> Callable[[bytes], re.Match[bytes] | None]:
    return re.compile(STAGES[index][1].encode()).search
