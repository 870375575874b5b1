"""Reads a stream in blocks and keeps a bounded summary of it: `feed(bytes)` as often as you like, then `finish()`.

Text stays a block of bytes; line, time, rank and captures are worked out only for the few lines that are kept. A scanner
may be given a shard of a stream: it *owns* the lines that start in its range and sees some context around them.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise

from kb.model import OWN, RESIZED, ProgressPoint, Resource, StreamRef, Structure
from kb.parsers.logs.prefixes import Prefix, peel
from kb.parsers.logs.progress.form_families import GENERAL
from kb.parsers.logs.progress.formats import FORMATS, read_line
from kb.parsers.logs.progress.line_format import changed
from kb.parsers.logs.registry import ALL_READERS
from kb.parsers.logs.stages import STAGES
from kb.parsers.logs.structured import stamp_of
from kb.parsers.logs.timestamps import find_time
from kb.parsers.reader import Reader
from kb.scanning.matcher import Matcher
from kb.scanning.plan import LinePattern, ScanPlan
from kb.scanning.summary import (
    FIRST_PLACES,
    LAST_PLACES,
    LAST_POINTS,
    PLACES_A_RANK,
    POINTS,
    SIZED_POINTS,
    TEXT,
    PatternHits,
    Place,
    RankTally,
    Series,
    StageMark,
    StreamSummary,
    bounded_marks,
    first_places,
    fuller,
    last_places,
    series_of,
    thinning,
)

WORK = 4 * 1024 * 1024  # bytes gathered before a pass
BEFORE = 16 * 1024  # context kept in front of what is still to come
AFTER = 64 * 1024  # context wanted behind a line before it is looked at
LONGEST_STRUCTURED = 2048  # bytes of a JSON line in which its time is looked for
LONGEST_LINE = 64 * 1024
SHOWN = 512
BESIDE = frozenset({"used", "rate", "loss_scale", OWN})  # forms of lines beside the iterations, often many a step
BESIDE_WHOLE = 512 * 1024  # so far into a stream they are all looked at, further on a part
SPARSE, SPARSE_EACH = 128 * 1024, 64
BESIDE_THIN = 7
ODD_LINES = 32
RANKS_TOLD = 64  # so many lines of a pattern in a block agree with the log's own rank, and the rest need not be asked
AT_HOME = 8  # so many training losses of a block are read, and the general forms still to come are not tried
ASKED = 32  # lines of a form in a block that are read to see whether they give one
SHAPES = 64
NEAR = 4096  # look-around regexes are not proven linear, so they see no more than this of a line
PLACES_A_SHAPE = 8  # structures parsed of one shape of line, in a log of one rank
PLACES_A_SHARED_SHAPE = 64  # likewise, in a log of many
LAST_READ = 8
_NOT_FINITE = re.compile(rb"[:=\s'\"](?:nan|NaN|NAN|inf|Inf|INF|Infinity)\b(?! iter)")
_DATED = re.compile(rb"(?<!\d)(?:19|20)\d\d[-/]?[01]\d[-/]?[0-3]\d")


_Noted = tuple[int, int, bytes, int]  # an iteration line: its offset, its form, text around it, where the form begins


@dataclass(slots=True)
class _Kept:
    """The hits of one line pattern while the stream is read: first places, hits taken a rank, tallies, last windows."""

    count: int = 0
    first: list[Place] = field(default_factory=list)
    taken: dict[int | None, int] = field(default_factory=dict)
    ranks: dict[int | None, list[int]] = field(default_factory=dict)
    last: deque[tuple[int, bytes, int]] = field(default_factory=lambda: deque(maxlen=LAST_PLACES))


@dataclass(slots=True)
class _Read:
    """The structures of one reader while the stream is read: how many of each shape were parsed, windows of the last."""

    parsed: int = 0
    shapes: dict[bytes, int] = field(default_factory=dict)
    last: deque[tuple[int, bytes, int]] = field(default_factory=lambda: deque(maxlen=LAST_READ))


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
    ) -> None:
        self._plan, self._matcher, self._ref, self._year = plan, matcher, ref, year
        self._once = plan.once
        self._base, self._next, self._stop = origin, own_start, own_stop
        self._chunks: list[bytes] = []
        self._waiting = 0
        self._end = origin
        self._own_start = own_start
        self._hits: dict[int, _Kept] = {}
        self._reads: dict[int, _Read] = {}
        self._structures: list[Structure] = []
        self._marks: list[StageMark] = []
        self._noted: list[_Noted] = []
        self._noted_first: _Noted | None = None
        self._noted_last: deque[_Noted] = deque(maxlen=LAST_POINTS)
        self._noted_odd: list[_Noted] = []
        self._noted_sized: list[_Noted] = []
        self._mask = self._seen = 0
        self._head = b""
        self._first_time: float | None = None
        self._tail: tuple[int, bytes] = (own_start, b"")

    def feed(self, block: bytes, again: int = 0) -> None:
        """Take the next bytes of the stream. `again`: so many of the first ones were given before, for context.

        Where they are as many as the scanner keeps of what it had, nothing is copied.
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
        """Read what is left and give the summary."""
        self._work(final=True)
        stop = self._end if self._stop is None else min(self._stop, self._end)
        return StreamSummary(
            ref=self._ref,
            size=max(0, stop - self._own_start),
            hits=self._all_hits(),
            structures=self._all_structures(),
            series=self._series(),
            marks=bounded_marks(self._marks),
            first_time=self._first_time,
            last_time=self._last_time(),
            head=_text(self._head),
            tail=_text(self._tail[1]),
            tail_offset=self._tail[0],
        )

    # The pass over a block

    def _work(self, *, final: bool) -> None:
        data = b"".join(self._chunks)
        if b"\r" in data:
            data = data.replace(b"\r", b"\n")
        limit = self._base + len(data) - (0 if final else AFTER)
        if self._stop is not None:
            limit = min(limit, self._stop)
        if limit > self._next or final:
            self._block(data, limit)
            self._next = max(self._next, limit)
        keep = max(0, min(self._next, self._base + len(data)) - BEFORE - self._base)
        self._chunks = [data[keep:]]
        self._waiting = len(self._chunks[0])
        self._base += keep

    def _block(self, data: bytes, limit: int) -> None:
        base, low = self._base, self._next - self._base
        high = limit - base
        if self._year is None and (dated := _DATED.search(data, 0, 1 << 20)):
            self._year = int(dated[0][:4])
        if not self._head and low < len(data) and self._own_start == 0:
            self._head = data[:TEXT]
            self._first_time = _first_time(data[:LONGEST_LINE], self._year)
        if high > 0:
            self._tail = (base + max(0, high - TEXT), data[max(0, high - TEXT) : high])
        by_pattern, present = _lines(data, self._matcher.hits(data), low, high, self._once)
        for pattern, starts in by_pattern.items():
            for target in self._plan.targets[pattern]:
                if target.kind == "rule":
                    self._rule(target.index, data, starts)
                elif target.kind == "reader":
                    self._reader(target.index, data, starts)
                else:
                    self._stage(target.index, data, starts)
        if present:
            forms = sorted(target.index for pattern in present for target in self._plan.targets[pattern])
            self._progress(forms, data, low, high)

    def _stage(self, index: int, data: bytes, starts: list[int]) -> None:
        stage, sure = STAGES[index][0], _stage_search(index)
        self._marks.extend(StageMark(self._base + start, stage) for start in starts if sure(_line(data, start)))
        if len(self._marks) > 4096:
            self._marks = list(bounded_marks(self._marks))

    # Hits of rules

    def _rule(self, index: int, data: bytes, starts: list[int]) -> None:
        line = self._plan.lines[index]
        if line.sources and self._ref.kind not in line.sources:
            return
        kept = self._hits.get(index)
        if kept is None:
            kept = self._hits[index] = _Kept()
        if not line.certain:
            search = _decider(line)
            starts = [start for start in starts if search(_line(data, start))]
        kept.count += len(starts)
        base, fixed = self._base, self._ref.resource.rank
        told, rest = self._asked(data, starts)
        for start in told:
            rank = _rank_of(data, start)
            if rank is None:
                rank = fixed
            _count(kept.ranks, rank, base + start)
            if len(kept.first) < FIRST_PLACES and kept.taken.get(rank, 0) < PLACES_A_RANK:
                kept.taken[rank] = kept.taken.get(rank, 0) + 1
                kept.first.append(self._place(line, base + start, _line(data, start), data, start))
        if rest:
            _count(kept.ranks, fixed, base + rest[0], len(rest))
        for start in starts[-LAST_PLACES:]:
            kept.last.append((base + start, data[max(0, start - 1024) : start + 8192], min(start, 1024)))

    def _asked(self, data: bytes, starts: list[int]) -> tuple[list[int], list[int]]:
        """Which lines must be asked for their rank: in a rank's own log a few, unless one of those is another rank's."""
        fixed = self._ref.resource.rank
        if fixed is None or len(starts) <= RANKS_TOLD:
            return starts, []
        told = starts[:RANKS_TOLD]
        if any(_rank_of(data, start) not in (None, fixed) for start in told):
            return starts, []
        return told, starts[RANKS_TOLD:]

    def _place(self, line: LinePattern, offset: int, text: bytes, data: bytes, start: int) -> Place:
        prefix = peel(text[:1024])
        match = _finder(line)(text)
        at = match.start() if match else 0
        captures = (
            tuple((name, _text(value)[:200]) for name, value in match.groupdict().items() if value) if match else ()
        )
        return Place(
            offset,
            _shown(text, at),
            _resource(self._ref.resource, prefix),
            prefix.time if prefix.time is not None else _time_before(data, start, self._year),
            captures,
        )

    def _all_hits(self) -> dict[str, PatternHits]:
        found = {}
        for index, kept in self._hits.items():
            if not kept.count:
                continue
            line = self._plan.lines[index]
            last = [self._place(line, offset, _line(data, at), data, at) for offset, data, at in kept.last]
            ranks = sorted(kept.ranks.items(), key=lambda item: (item[1][1], -1 if item[0] is None else item[0]))
            found[line.key] = PatternHits(
                kept.count,
                first_places(kept.first),
                last_places(last),
                tuple(RankTally(rank, count, first) for rank, (count, first) in ranks),
            )
        return dict(sorted(found.items()))

    # Structures

    def _reader(self, index: int, data: bytes, starts: list[int]) -> None:
        """Parse the first few places of each shape of line; keep the windows of the last few for the end."""
        reader = ALL_READERS[index]
        state = self._reads.get(index)
        if state is None:
            state = self._reads[index] = _Read()
        enough = PLACES_A_SHAPE if self._ref.resource.rank is not None else PLACES_A_SHARED_SHAPE
        for start in starts:
            shape = data[start : start + 96].partition(b"\n")[0].translate(None, b"0123456789")[:48]
            seen = state.shapes.get(shape, 0)
            if seen < enough and state.parsed < reader.keep and (seen or len(state.shapes) < SHAPES):
                state.shapes[shape] = seen + 1
                state.parsed += 1
                self._parse(reader, self._base + start, *_window(data, start, reader))
        if state.parsed < len(starts) or state.parsed >= enough:
            for start in starts[-LAST_READ:]:
                state.last.append((self._base + start, *_window(data, start, reader)))

    def _parse(self, reader: Reader, offset: int, window: bytes, at: int) -> None:
        shift = offset - at
        for one in reader.read(window, at):
            fields = one.fields
            if "start" in fields:
                fields = {**fields, "start": int(fields["start"] or 0) + shift}
            self._structures.append(
                replace(
                    one,
                    offset=one.offset + shift,
                    end=one.end + shift,
                    fields=fields,
                    resource=_known(self._ref.resource, one.resource),
                    time=one.time if one.time is not None else _time_before(window, one.offset, self._year),
                )
            )

    def _all_structures(self) -> tuple[Structure, ...]:
        for index, state in sorted(self._reads.items()):
            for offset, window, at in state.last:
                self._parse(ALL_READERS[index], offset, window, at)
        best: dict[tuple[str, int], Structure] = {}
        for one in self._structures:
            key = (one.kind, one.offset)
            best[key] = fuller(best[key], one) if key in best else one
        return tuple(best[key] for key in sorted(best, key=lambda key: (key[1], key[0])))

    # Iteration lines

    def _progress(self, forms: list[int], data: bytes, low: int, high: int) -> None:
        """Note the iteration lines of a block; they are read at the end, the few that thinning leaves."""
        claimed: set[int] = set()
        home = 0
        for index in forms:
            form = FORMATS[index]
            general, bar, asked = form.name.endswith(GENERAL), form.name == "tqdm", 0
            if general and home >= AT_HOME:
                continue
            for first, last in self._stretches(form.name, max(0, low), max(0, high)):
                for match in form.find.finditer(data, first, last):
                    start = data.rfind(b"\n", max(0, match.start() - LONGEST_LINE), match.start()) + 1
                    if (start in claimed and not bar) or (general and b"oss" not in data[start : match.end()]):
                        continue
                    if not bar or (data[match.end() : match.end() + 1] != b"]" and _inside(data, match.end())):
                        claimed.add(start)
                    if home < AT_HOME and asked < ASKED:
                        asked += 1
                        home += _is_home(form.read(match))
                    self._note(index, data, start, match.start(), match[0])

    def _stretches(self, name: str, low: int, high: int) -> Iterator[tuple[int, int]]:
        """Where to look for a form: everywhere, but for lines beside the iterations only in a part of a long stream."""
        if name not in BESIDE:
            yield low, high
            return
        at = low
        while at < high:
            place = self._base + at
            edge = min(high, at + SPARSE - place % SPARSE)
            if place < BESIDE_WHOLE or place // SPARSE % SPARSE_EACH == 0:
                yield at, edge
            at = edge

    def _note(self, form: int, data: bytes, start: int, at: int, found: bytes) -> None:
        self._seen += 1
        offset = self._base + start
        low = max(start, at - NEAR // 2)
        noted = (offset, form, data[low : at + NEAR // 2], at - low)
        if self._noted_first is None or offset < self._noted_first[0]:
            self._noted_first = noted
        self._noted_last.append(noted)
        if FORMATS[form].name == RESIZED:
            if len(self._noted_sized) < SIZED_POINTS:
                self._noted_sized.append(noted)
        elif len(self._noted_odd) < ODD_LINES and _NOT_FINITE.search(found):
            self._noted_odd.append(noted)
        thin = self._mask
        if FORMATS[form].name in BESIDE and offset >= BESIDE_WHOLE:
            thin |= BESIDE_THIN
        if thinning(offset) & thin == 0:
            self._noted.append(noted)
            while len(self._noted) > 2 * POINTS:
                self._mask = self._mask << 1 | 1
                self._noted = [one for one in self._noted if thinning(one[0]) & self._mask == 0]

    def _series(self) -> Series:
        """Read the lines noted: a sample of all, the first, the last few, and the first that look like nan or inf."""
        sample = {one[0] for one in self._noted if thinning(one[0]) & self._mask == 0}
        while len(sample) > POINTS:
            self._mask = self._mask << 1 | 1
            sample = {offset for offset in sample if thinning(offset) & self._mask == 0}
        odd = (*self._noted_odd, *self._noted_sized)
        ends = [one for one in (self._noted_first, *self._noted_last, *odd) if one is not None]
        wanted = {one[0]: one for one in self._noted if one[0] in sample} | {one[0]: one for one in ends}
        points = [point for _, one in sorted(wanted.items()) if (point := self._read_noted(*one)) is not None]
        return series_of(points, self._seen, self._mask)

    def _read_noted(self, offset: int, form: int, text: bytes, at: int) -> ProgressPoint | None:
        line = text.partition(b"\n")[0]
        match = FORMATS[form].find.match(line, at)
        point = (FORMATS[form].read(match) if match else None) or read_line(line)
        if point is None:
            return None
        prefix = peel(line[:256])
        ranks = (prefix.rank, point.rank, self._ref.resource.rank)
        rank = next((one for one in ranks if one is not None), None)
        time = point.time if point.time is not None else prefix.time
        if time is None:
            time = find_time(line[prefix.end : prefix.end + 128], self._year)
        return changed(point, offset=offset, rank=rank, time=time)

    def _last_time(self) -> float | None:
        for line in reversed(self._tail[1].split(b"\n")[-200:]):
            if line and (time := _line_time(line, self._year)) is not None:
                return time
        return self._first_time


def _is_home(point: ProgressPoint | None) -> bool:
    """Whether a form's point is of the training itself: evaluations and bare bars stand beside lines that say the loss."""
    return point is not None and not point.validation and (point.loss is not None or point.format != "tqdm")


def _inside(data: bytes, at: int) -> bool:
    """Whether a bar that goes on here has a loss in its brackets."""
    return b"oss" in data[at : max(at, data.find(b"]", at, at + 1024))]


def scan(
    plan: ScanPlan, matcher: Matcher, ref: StreamRef, blocks: Iterable[bytes], year: int | None = None
) -> StreamSummary:
    """Scan a whole stream given as blocks."""
    scanner = Scanner(plan, matcher, ref, year=year)
    for block in blocks:
        scanner.feed(block)
    return scanner.finish()


def _lines(
    data: bytes, hits: list[tuple[int, int]], low: int, high: int, once: frozenset[int]
) -> tuple[dict[int, list[int]], set[int]]:
    """Hits as pattern → the starts of the lines owned here, in order, none twice; and which `once` patterns are there.

    Those tell of one line of the block only, which may lie in the context around what is owned.
    """
    found: dict[int, list[int]] = {}
    present: set[int] = set()
    start, stop, own = -1, -1, False
    rfind, find = data.rfind, data.find
    for pattern, at in hits:
        if not start <= at < stop:
            floor = max(0, at - LONGEST_LINE)
            newline = rfind(b"\n", floor, at)
            start = floor if newline < 0 else newline + 1
            newline = find(b"\n", at, at + LONGEST_LINE)
            stop = at + 1 if newline < 0 else newline
            own = low <= start < high
        if own:
            starts = found.get(pattern)
            if starts is None:
                found[pattern] = [start]
            elif starts[-1] != start:
                starts.append(start)
        elif pattern in once:
            present.add(pattern)
    for pattern in once & found.keys():
        present.add(pattern)
        del found[pattern]
    for pattern, starts in found.items():
        if any(later <= earlier for earlier, later in pairwise(starts)):  # engines tell hits by where they end
            found[pattern] = sorted(set(starts))
    return found, present


def _count(ranks: dict[int | None, list[int]], rank: int | None, offset: int, more: int = 1) -> None:
    tally = ranks.get(rank)
    if tally is None:
        ranks[rank] = [more, offset]
    else:
        tally[0] += more


def _rank_of(data: bytes, start: int) -> int | None:
    """The rank in a line's prefix; nearly every line is told without peeling it."""
    head = data[start : start + 96]
    if head.startswith(b"[rank"):
        number, closed, _ = head[5:12].partition(b"]")
        if closed and number.isdigit():
            return int(number)
    if b"[rank" in head or head[:1].isdigit() or head.startswith((b" ", b"[1,", b"\x1b")):
        return peel(data[start : start + 256]).rank
    return None


def _line(data: bytes, start: int) -> bytes:
    stop = data.find(b"\n", start, start + LONGEST_LINE)
    return data[start : stop if stop >= 0 else start + LONGEST_LINE]


def _window(data: bytes, start: int, reader: Reader) -> tuple[bytes, int]:
    """The bytes around a line that a reader wants, from a line start on, and where the line lies in them."""
    low = max(0, start - reader.before)
    if low:
        newline = data.find(b"\n", low, start)
        low = start if newline < 0 else newline + 1
    return data[low : start + reader.after], start - low


def _resource(stream: Resource, prefix: Prefix) -> Resource:
    return _known(stream, Resource(node=prefix.node, rank=prefix.rank, local_rank=prefix.local_rank, pid=prefix.pid))


def _known(stream: Resource, line: Resource) -> Resource:
    """What the line says of its speaker, filled up with what the stream says."""
    return Resource(
        cluster=line.cluster or stream.cluster,
        node=line.node or stream.node,
        rank=stream.rank if line.rank is None else line.rank,
        local_rank=stream.local_rank if line.local_rank is None else line.local_rank,
        gpu=line.gpu or stream.gpu,
        pid=stream.pid if line.pid is None else line.pid,
        container=line.container or stream.container,
    )


def _line_time(line: bytes, year: int | None) -> float | None:
    return _stamp(line[:LONGEST_STRUCTURED], year)


@lru_cache(maxsize=4096)
def _stamp(line: bytes, year: int | None) -> float | None:
    """The time that a line's beginning tells; asked again and again for the lines around those that are kept."""
    if line.startswith(b"{") and (time := stamp_of(line)) is not None:
        return time
    prefix = peel(line[:512])
    return prefix.time if prefix.time is not None else find_time(line[prefix.end : prefix.end + 128], year)


def _time_before(data: bytes, start: int, year: int | None) -> float | None:
    """The time of a line: its own stamp, or that of the nearest of the twelve lines before it."""
    for line in (_line(data, start), *reversed(data[max(0, start - 2048) : start].split(b"\n")[-13:])):
        if line and (time := _line_time(line, year)) is not None:
            return time
    return None


def _first_time(head: bytes, year: int | None) -> float | None:
    for line in head.split(b"\n")[:200]:
        if line and (time := _line_time(line, year)) is not None:
            return time
    return None


def _shown(text: bytes, at: int) -> str:
    start = 0 if len(text) <= SHOWN or at < SHOWN // 2 else at - SHOWN // 4
    return _text(text[start : start + SHOWN])


def _text(value: bytes) -> str:
    return value.decode("utf-8", errors="replace")


@lru_cache(maxsize=256)
def _stage_search(index: int) -> Callable[[bytes], re.Match[bytes] | None]:
    return re.compile(STAGES[index][1].encode()).search


@lru_cache(maxsize=4096)
def _finder(line: LinePattern) -> Callable[[bytes], re.Match[bytes] | None]:
    """Search a line for the pattern; after the peeled prefix where the regex has `^`."""
    search = re.compile(line.regex.encode(), re.IGNORECASE if line.ignore_case else 0).search
    if not line.anchored:
        return search
    return lambda text: search(text[peel(text[:1024]).end :])


@lru_cache(maxsize=4096)
def _decider(line: LinePattern) -> Callable[[bytes], bool]:
    """Whether a line that the engine hit is one that the rule means."""
    find = _finder(line)
    confirm = re.compile(line.confirm.encode()).search if line.confirm else None
    deny = re.compile(line.not_line.encode()).search if line.not_line else None

    def decide(text: bytes) -> bool:
        match = find(text)
        if match is None:
            return False
        near = text if len(text) <= NEAR else text[max(0, match.start() - NEAR // 2) : match.end() + NEAR // 2]
        return (confirm is None or confirm(near) is not None) and (deny is None or deny(near) is None)

    return decide
