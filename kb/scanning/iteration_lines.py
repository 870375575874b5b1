"""The iteration lines of one stream, thinned evenly over its length."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from functools import lru_cache

from kb.model import OWN, RESIZED, ProgressPoint, StreamRef
from kb.parsers.logs.prefixes import HEAD, peel_head
from kb.parsers.logs.progress.form_families import GENERAL
from kb.parsers.logs.progress.formats import FORMATS, read_line
from kb.parsers.logs.progress.line_format import changed
from kb.parsers.logs.progress.side_lines import OwnSteps
from kb.parsers.logs.timestamps import find_time
from kb.regex.lazy import lazy_compile
from kb.scanning.hit_collector import NEAR
from kb.scanning.learned_ranks import rank_by
from kb.scanning.limits import WHOLE, SummaryLimits
from kb.scanning.line_access import LONGEST_LINE
from kb.scanning.summary import BESIDE, SIZED_POINTS, Series, series_of, thinning
from kb.values import dataclass

BESIDE_EACH_RANK = 128  # maximum number of auxiliary lines kept per log of one rank
ODD_LINES = 32
AT_HOME = 8  # once this many training losses of a block are read, the remaining general forms are skipped
ASKED = 32  # lines of a form in a block that are read to find out whether they contain a loss
BESIDE_END = (
    16 * 1024
)  # bytes at the end of a stream whose lines beside the iterations are all kept, up to as many as are kept of the last ones
_NOT_FINITE = lazy_compile(rb"[:=\s'\"](?:nan|NaN|NAN|inf|Inf|INF|Infinity)\b(?! iter)")
_BARS = ("tqdm", "keras")  # formats of progress bars
_OWN_FORMS = frozenset(index for index, form in enumerate(FORMATS) if form.name == OWN)
_FoundLine = tuple[int, int, int]  # where an iteration line begins in its block, its form, where the form begins
_NotedLine = tuple[
    int, int, bytes, int
]  # an iteration line: its offset, its form, what of it is near its form, where the form begins in that


class _Sample:
    """Lines selected by a hash of their key and a mask. The mask grows when there are too many lines."""

    def __init__(self, most: int) -> None:
        self.mask = 0
        self._most = most
        self._lines: dict[object, tuple[int, _NotedLine]] = {}

    def takes(self, key: int) -> bool:
        """Whether a line with this key is kept."""
        return thinning(key) & self.mask == 0

    def add(self, key: int, noted: _NotedLine, place: object) -> None:
        """Keep a line whose key passes the mask, replacing an earlier one at the same place."""
        self._lines[place] = key, noted
        self._thin(2 * self._most)

    def lines(self) -> Iterator[_NotedLine]:
        """Return the remaining lines."""
        self._thin(self._most)
        return (noted for _, noted in self._lines.values())

    def _thin(self, most: int) -> None:
        while len(self._lines) > most:
            self.mask = self.mask << 1 | 1
            self._lines = {place: item for place, item in self._lines.items() if self.takes(item[0])}


@dataclass(frozen=True, slots=True)
class _Block:
    """A block of the stream at offset `base`. The lines that begin between `low` and `high` are owned.

    `last`: it may be the last one.
    """

    data: bytes
    base: int
    low: int
    high: int
    last: bool


@dataclass(frozen=True, slots=True)
class _Reach:
    """Where lines beside the iterations are sampled: in the first `whole` bytes, then in each `each`-th piece of `piece` bytes."""

    whole: int
    piece: int
    each: int
    once: bool = False  # of a step, only the last line of a form is kept

    def covers(self, offset: int) -> bool:
        """Whether a line that begins here is sampled."""
        return offset < self.whole or offset // self.piece % self.each == 0

    def stretches(self, block: _Block) -> Iterator[tuple[int, int]]:
        """Yield the parts of a block that are looked at: what is sampled, and the end of one that may be the last."""
        edge = max(block.low, block.high - BESIDE_END) if block.last else block.high
        at = self._sampled_from(block.base + block.low) - block.base
        while at < edge:
            place = block.base + at
            stop = min(
                edge, (self.whole if place < self.whole else place - place % self.piece + self.piece) - block.base
            )
            yield at, stop
            at = self._sampled_from(block.base + stop) - block.base
        if block.last:
            yield edge, block.high

    def _sampled_from(self, offset: int) -> int:
        """Return the first place at or after an offset that is sampled."""
        pieces = -(offset // self.piece) % self.each
        return offset if offset < self.whole or not pieces else (offset // self.piece + pieces) * self.piece


_SHARED = _Reach(512 * 1024, 128 * 1024, 64)
_OF_ONE_RANK = _Reach(64 * 1024, 16 * 1024, 512, once=True)


class IterationLines:
    """Records the iteration lines of one stream, and reads the few that remain after thinning.

    Lines beside the iterations, often many a step, are sampled apart from them, by their step: all ranks keep the same steps, so that
    they can be compared.
    """

    def __init__(self, ref: StreamRef, limits: SummaryLimits = WHOLE, speaker: re.Pattern[bytes] | None = None) -> None:
        self._ref, self._limits, self._speaker = ref, limits, speaker
        own = ref.resource.rank is not None
        self._reach = _OF_ONE_RANK if own and (ref.size or 0) > _SHARED.whole else _SHARED
        self._main = _Sample(limits.points)
        self._beside = _Sample(min(BESIDE_EACH_RANK, limits.points) if own else limits.points)
        self._noted_first: _NotedLine | None = None
        self._noted_last: deque[_NotedLine] = deque(maxlen=limits.last_points)
        self._beside_last: deque[_NotedLine] = deque(maxlen=limits.last_points)
        self._noted_odd: list[_NotedLine] = []
        self._noted_sized: list[_NotedLine] = []
        self._seen = 0

    def add(self, forms: list[int], data: bytes, base: int, low: int, high: int) -> None:
        """Record the iteration lines of a block. The few that remain after thinning are read at the end."""
        last = base + high >= (self._ref.size or 0) - BESIDE_END
        block = _Block(data, base, max(0, low), max(0, high), last)
        claimed = self._add_main([index for index in forms if FORMATS[index].name not in BESIDE], block)
        if beside := [index for index in forms if FORMATS[index].name in BESIDE]:
            self._add_beside(beside, block, claimed)

    def _add_main(self, forms: list[int], block: _Block) -> set[int]:
        """Record the iteration lines of a block, and return their starts.

        This runs for each line of a form, so the text of a line is only copied if the line is kept.
        """
        claimed: set[int] = set()
        data, base = block.data, block.base
        latest: deque[_FoundLine] = deque(maxlen=self._limits.last_points)
        home = 0
        rfind = data.rfind
        for index in forms:
            form = FORMATS[index]
            general, bar, asked = form.name.endswith(GENERAL), form.name == "tqdm", 0
            sized = form.name == RESIZED
            if general and home >= AT_HOME:
                continue
            for match in form.find.finditer(data, block.low, block.high):
                at, end = match.span()
                start = rfind(b"\n", at - LONGEST_LINE if at > LONGEST_LINE else 0, at) + 1
                if (start in claimed and not bar) or (general and b"oss" not in data[start:end]):
                    continue
                if not bar or (data[end : end + 1] != b"]" and _loss_in_bar(data, end)):
                    claimed.add(start)
                if home < AT_HOME and asked < ASKED and not sized:  # those are never the training's own
                    asked += 1
                    home += _is_training_point(form.read(match))
                line = start, index, at
                latest.append(line)
                self._seen += 1
                offset = base + start
                kept = thinning(offset) & self._main.mask == 0
                odd = sized or (len(self._noted_odd) < ODD_LINES and _NOT_FINITE.search(data, at, end) is not None)
                if kept or odd or self._precedes(offset):
                    self._note(_noted(data, base, line), kept=kept, odd=odd)
        self._noted_last.extend(_noted(data, base, line) for line in latest)
        return claimed

    def _note(self, noted: _NotedLine, *, kept: bool, odd: bool) -> None:
        """Keep a line if it passes thinning, is unusual, or is the first."""
        self._note_first(noted)
        if odd and FORMATS[noted[1]].name != RESIZED:
            self._noted_odd.append(noted)
        elif odd and len(self._noted_sized) < SIZED_POINTS:
            self._noted_sized.append(noted)
        if kept:
            self._main.add(noted[0], noted, noted[0])

    def _note_first(self, noted: _NotedLine) -> None:
        if self._precedes(noted[0]):
            self._noted_first = noted

    def _precedes(self, offset: int) -> bool:
        """Whether a line begins before all that are noted."""
        return self._noted_first is None or offset < self._noted_first[0]

    def _add_beside(self, forms: list[int], block: _Block, claimed: set[int]) -> None:
        """Note the lines beside the iterations in the stretches of a block, each once, with the first of its forms."""
        for first, last in self._reach.stretches(block):
            found: dict[int, tuple[int, int]] = {}
            rfind = block.data.rfind
            for index in forms:
                for match in FORMATS[index].find.finditer(block.data, first, last):
                    at = match.start()
                    start = rfind(b"\n", at - LONGEST_LINE if at > LONGEST_LINE else 0, at) + 1
                    if start not in found and start not in claimed:
                        found[start] = (index, at)
            if found:
                self._note_beside([(start, *found[start]) for start in sorted(found)], block)

    def _note_beside(self, found: list[_FoundLine], block: _Block) -> None:
        """Note the lines of a stretch, given in order. Of those that replace each other in the sample, only the last is copied."""
        data, base, end = block.data, block.base, block.high - BESIDE_END
        sampled: dict[object, tuple[int, _FoundLine]] = {}
        for line, key in zip(found, _keys_beside(found, block), strict=True):
            offset = base + line[0]
            covered = self._reach.covers(offset)
            self._seen += covered
            if key is None:
                continue
            if covered:
                sampled[(key, line[1]) if self._reach.once else offset] = key, line
                if self._precedes(offset) and self._beside.takes(key):
                    self._note_first(_noted(data, base, line))
            if line[0] >= end:
                self._beside_last.append(_noted(data, base, line))
        for place, (key, line) in sampled.items():
            if self._beside.takes(key):
                self._beside.add(key, _noted(data, base, line), place)

    def series(self, year: int | None, end: int | None = None) -> Series:
        """Read the recorded lines: a sample, the first, the last few, and the first ones that look like nan or inf.

        `end`: where the stream ends; None for a shard that others follow.
        """
        last = () if end is None else (item for item in self._beside_last if item[0] >= end - BESIDE_END)
        ends = (*self._noted_last, *last, *self._noted_odd, *self._noted_sized)
        first = () if self._noted_first is None else (self._noted_first,)
        wanted: dict[int, _NotedLine] = {
            item[0]: item for item in (*self._beside.lines(), *self._main.lines(), *first, *ends)
        }
        points = [point for _, item in sorted(wanted.items()) if (point := self._read_noted(*item, year)) is not None]
        return series_of(
            points,
            self._seen,
            self._main.mask,
            self._beside.mask,
            most=self._limits.points,
            last=self._limits.last_points,
        )

    def _read_noted(self, offset: int, form: int, text: bytes, at: int, year: int | None) -> ProgressPoint | None:
        found = _read(form, text, at, year)
        if found is None:
            return None
        point, rank, time = found
        if rank is None and self._speaker is not None:
            rank = rank_by(self._speaker, text)
        return changed(point, offset=offset, rank=self._ref.resource.rank if rank is None else rank, time=time)


@lru_cache(maxsize=4096)  # whoever follows a log reads the lines since the last look again
def _read(form: int, line: bytes, at: int, year: int | None) -> tuple[ProgressPoint, int | None, float | None] | None:
    """Return the point of an iteration line, whose offset is undefined, and the rank and the time that the line states."""
    match = FORMATS[form].find.match(line, at)
    point = FORMATS[form].read(match) if match else None
    if point is None and FORMATS[form].name not in BESIDE:  # a line beside the iterations is of its form, or of none
        point = read_line(line)
    if point is None:
        return None
    prefix = peel_head(line[:HEAD])
    time = point.time if point.time is not None else prefix.time
    if time is None:
        # a stamp after a bar is that of the message glued to it, written later
        time = find_time(line[prefix.end : min(prefix.end + 128, at if point.format in _BARS else len(line))], year)
    return point, point.rank if prefix.rank is None else prefix.rank, time


def _noted(data: bytes, base: int, line: _FoundLine) -> _NotedLine:
    """Return the parts of a line to keep."""
    start, form, at = line
    low, high = max(start, at - NEAR // 2), at + NEAR // 2
    end = data.find(b"\n", at, high)
    return base + start, form, data[low : high if end < 0 else end], at - low


def _keys_beside(found: list[_FoundLine], block: _Block) -> Iterator[int | None]:
    """Yield by what each line beside the iterations is sampled: its step, or its offset where its form has none; None if it cannot be read."""
    first = found[0][0]
    steps = OwnSteps(block.data[first : found[-1][0] + NEAR])
    for start, form, _ in found:
        yield steps.at(start - first, NEAR) if form in _OWN_FORMS else block.base + start


def _is_training_point(point: ProgressPoint | None) -> bool:
    """Whether a form's point is of the training itself: evaluations and bare bars stand beside lines that say the loss."""
    return point is not None and not point.validation and (point.loss is not None or point.format != "tqdm")


def _loss_in_bar(data: bytes, at: int) -> bool:
    """Whether a bar that continues here has a loss in its brackets, or behind it where it has none."""
    end = data.find(b"\n", at, at + 1024)
    end = at + 1024 if end < 0 else end
    close = data.find(b"]", at, end)
    return b"oss" in data[at : end if close < 0 else close]
