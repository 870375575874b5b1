"""The iteration lines of one stream, thinned evenly over its length."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from kb.model import OWN, RESIZED, ProgressPoint, StreamRef
from kb.parsers.logs.prefixes import HEAD, peel_head
from kb.parsers.logs.progress.form_families import GENERAL
from kb.parsers.logs.progress.formats import FORMATS, read_line
from kb.parsers.logs.progress.line_format import changed
from kb.parsers.logs.timestamps import find_time
from kb.regex.lazy import lazy_compile
from kb.scanning.hit_collector import NEAR
from kb.scanning.line_access import LONGEST_LINE
from kb.scanning.summary import LAST_POINTS, POINTS, SIZED_POINTS, Series, series_of, thinning

BESIDE = frozenset({"used", "rate", "loss_scale", OWN})  # forms of lines beside the iterations, often many a step
BESIDE_WHOLE = 512 * 1024  # so far into a stream they are all looked at, further on a part
SPARSE, SPARSE_EACH = 128 * 1024, 64
BESIDE_THIN = 7
ODD_LINES = 32
AT_HOME = 8  # so many training losses of a block are read, and the general forms still to come are not tried
ASKED = 32  # lines of a form in a block that are read to see whether they give one
_NOT_FINITE = lazy_compile(rb"[:=\s'\"](?:nan|NaN|NAN|inf|Inf|INF|Infinity)\b(?! iter)")
_NotedLine = tuple[
    int, int, bytes, int
]  # an iteration line: its offset, its form, text around it, where the form begins


class IterationLines:
    """Notes the iteration lines of one stream, and reads the few that thinning leaves."""

    def __init__(self, ref: StreamRef) -> None:
        self._ref = ref
        self._noted: list[_NotedLine] = []
        self._noted_first: _NotedLine | None = None
        self._noted_last: deque[_NotedLine] = deque(maxlen=LAST_POINTS)
        self._noted_odd: list[_NotedLine] = []
        self._noted_sized: list[_NotedLine] = []
        self._mask = self._seen = 0

    def add(self, forms: list[int], data: bytes, base: int, low: int, high: int) -> None:
        """Note the iteration lines of a block; they are read at the end, the few that thinning leaves.

        This runs for each line of a form, so the text of a line is only copied if the line is kept.
        """
        claimed: set[int] = set()
        latest: deque[tuple[int, int, int]] = deque(maxlen=LAST_POINTS)
        home = 0
        rfind = data.rfind
        for index in forms:
            form = FORMATS[index]
            general, bar, asked = form.name.endswith(GENERAL), form.name == "tqdm", 0
            sized, beside = form.name == RESIZED, form.name in BESIDE
            if general and home >= AT_HOME:
                continue
            for first, last in _searched_stretches(form.name, base, max(0, low), max(0, high)):
                for match in form.find.finditer(data, first, last):
                    at, end = match.span()
                    start = rfind(b"\n", at - LONGEST_LINE if at > LONGEST_LINE else 0, at) + 1
                    if (start in claimed and not bar) or (general and b"oss" not in data[start:end]):
                        continue
                    if not bar or (data[end : end + 1] != b"]" and _loss_in_bar(data, end)):
                        claimed.add(start)
                    if home < AT_HOME and asked < ASKED and not (beside or sized):  # those are never the training's own
                        asked += 1
                        home += _is_training_point(form.read(match))
                    latest.append((index, start, at))
                    self._seen += 1
                    offset = base + start
                    kept = thinning(offset) & (self._mask | BESIDE_THIN * (beside and offset >= BESIDE_WHOLE)) == 0
                    odd = sized or (len(self._noted_odd) < ODD_LINES and _NOT_FINITE.search(data, at, end) is not None)
                    if kept or odd or self._noted_first is None or offset < self._noted_first[0]:
                        self._note(_noted(index, data, base, start, at), kept=kept, odd=odd)
        self._noted_last.extend(_noted(index, data, base, start, at) for index, start, at in latest)

    def _note(self, noted: _NotedLine, *, kept: bool, odd: bool) -> None:
        """Keep a line: because thinning leaves it, because it is odd, or because it is the first."""
        if self._noted_first is None or noted[0] < self._noted_first[0]:
            self._noted_first = noted
        if odd and FORMATS[noted[1]].name != RESIZED:
            self._noted_odd.append(noted)
        elif odd and len(self._noted_sized) < SIZED_POINTS:
            self._noted_sized.append(noted)
        if kept:
            self._noted.append(noted)
            while len(self._noted) > 2 * POINTS:
                self._mask = self._mask << 1 | 1
                self._noted = [item for item in self._noted if thinning(item[0]) & self._mask == 0]

    def series(self, year: int | None) -> Series:
        """Read the lines noted: a sample of all, the first, the last few, and the first that look like nan or inf."""
        sample = {item[0] for item in self._noted if thinning(item[0]) & self._mask == 0}
        while len(sample) > POINTS:
            self._mask = self._mask << 1 | 1
            sample = {offset for offset in sample if thinning(offset) & self._mask == 0}
        odd = (*self._noted_odd, *self._noted_sized)
        ends = [item for item in (self._noted_first, *self._noted_last, *odd) if item is not None]
        wanted = {item[0]: item for item in self._noted if item[0] in sample} | {end[0]: end for end in ends}
        points = [point for _, item in sorted(wanted.items()) if (point := self._read_noted(*item, year)) is not None]
        return series_of(points, self._seen, self._mask)

    def _read_noted(self, offset: int, form: int, text: bytes, at: int, year: int | None) -> ProgressPoint | None:
        line = text.partition(b"\n")[0]
        match = FORMATS[form].find.match(line, at)
        point = (FORMATS[form].read(match) if match else None) or read_line(line)
        if point is None:
            return None
        prefix = peel_head(line[:HEAD])
        ranks = (prefix.rank, point.rank, self._ref.resource.rank)
        rank = next((item for item in ranks if item is not None), None)
        time = point.time if point.time is not None else prefix.time
        if time is None:
            time = find_time(line[prefix.end : prefix.end + 128], year)
        return changed(point, offset=offset, rank=rank, time=time)


def _noted(form: int, data: bytes, base: int, start: int, at: int) -> _NotedLine:
    """What is kept of the line that begins at `start` and has its form at `at`."""
    low = max(start, at - NEAR // 2)
    return base + start, form, data[low : at + NEAR // 2], at - low


def _searched_stretches(name: str, base: int, low: int, high: int) -> Iterator[tuple[int, int]]:
    """Where to look for a form: everywhere, but for lines beside the iterations only in a part of a long stream."""
    if name not in BESIDE:
        yield low, high
        return
    at = low
    while at < high:
        place = base + at
        edge = min(high, at + SPARSE - place % SPARSE)
        if place < BESIDE_WHOLE or place // SPARSE % SPARSE_EACH == 0:
            yield at, edge
        at = edge


def _is_training_point(point: ProgressPoint | None) -> bool:
    """Whether a form's point is of the training itself: evaluations and bare bars stand beside lines that say the loss."""
    return point is not None and not point.validation and (point.loss is not None or point.format != "tqdm")


def _loss_in_bar(data: bytes, at: int) -> bool:
    """Whether a bar that goes on here has a loss in its brackets, or behind it where it has none."""
    end = data.find(b"\n", at, at + 1024)
    end = at + 1024 if end < 0 else end
    close = data.find(b"]", at, end)
    return b"oss" in data[at : end if close < 0 else close]
