"""The rows of a timeline before they are folded: one per rank, or per node or log if the rank is unknown.

The bytes between two timestamps of a log are the volume written in that time, so a few timestamps per log are enough.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median, median_low

from kb.facts.evidence import Evidence
from kb.facts.job_facts import Facts
from kb.facts.topology import Place, Places
from kb.model import OWN, ProgressPoint, Resource, Structure
from kb.report import Diagnosis, Report
from kb.scanning.summary import LAST_POINTS, StreamSummary

CLOSE = 512  # bytes: between timestamps this close there is no pause, and lines have the time of the first
CLOCK = 5.0  # seconds; smaller clock differences are ignored
LEAST_CLOCKS = 3  # minimum number of logs with the same step; of two it is unknown which is wrong
LEAST_GAPS = 5  # minimum number of gaps to know the usual one
QUIET = 0.9  # quantile of a row's own gaps that counts as usual
_ENDINGS = {"native_crash": "crashed", "oom_kill": "killed: out of memory", "watchdog": "collective timed out"}

Span = tuple[float, float]  # seconds since the epoch, the second after the first
Key = tuple[str, str, int]  # kind of the row ("rank", "process", "node" or "log"), name, number


@dataclass(frozen=True, slots=True)
class Voice:
    """One writer of a shared log: (time, bytes) of its lines in the span, and its last time."""

    who: Resource
    said: tuple[tuple[float, int], ...]
    last: float | None = None


@dataclass(frozen=True, slots=True)
class StreamActivity:
    """The result of reading a log again: (offset, time) of timestamps, and the writers of a shared log."""

    stamps: tuple[tuple[int, float], ...] = ()
    voices: tuple[Voice, ...] = ()


@dataclass(frozen=True, slots=True)
class RowError:
    """A row's first error: its time (None: unknown), a short text; `cause`: it belongs to the first diagnosis."""

    time: float | None
    what: str
    cause: bool = False


@dataclass(slots=True)
class RowActivity:
    """One row under construction. `cells`: column → bytes; `clock`: seconds by which its clock is ahead."""

    key: Key
    place: Place
    cells: dict[int, float] = field(default_factory=dict)
    first: float | None = None
    last: float | None = None
    step: int | None = None
    stepped: float | None = None
    error: RowError | None = None
    clock: float = 0.0

    @property
    def idle(self) -> bool:
        """Whether nothing is known about it."""
        return not self.cells and self.last is None and self.step is None and self.error is None

    def heard(self, first: float | None, last: float | None) -> None:
        """Extend the span of the row's activity."""
        known = [time for time in (first, last, self.first, self.last) if time is not None]
        self.first, self.last = (min(known), max(known)) if known else (None, None)

    def stepped_to(self, step: int, time: float | None) -> None:
        """Record the step of an iteration line."""
        if self.step is None or step > self.step:
            self.step, self.stepped = step, time

    def erred(self, row_error: RowError) -> None:
        """Keep the first error; the first diagnosis wins at the same time, a known time wins over none."""
        if self.error is None or _before(row_error, self.error):
            self.error = row_error


def _before(row_error: RowError, other: RowError) -> bool:
    if row_error.time is None or other.time is None:
        return (row_error.cause, row_error.time is not None) > (other.cause, other.time is not None)
    return (row_error.time, not row_error.cause) < (other.time, not other.cause)


class Rows:
    """The rows of a job. Filled by `look` once the span to show is known."""

    def __init__(self, evidence: Evidence, report: Report) -> None:
        self.facts = Facts(evidence)
        self.places = Places(self.facts)
        self.rows: dict[Key, RowActivity] = {}
        self._report = report
        self._sources = {item.ref.uri: index for index, item in enumerate(evidence.streams)}
        self.streams = [index for index, item in enumerate(evidence.streams) if is_log(item)]
        self.clocks = _clocks(self.facts, self.places, self.streams)
        self._stamps: dict[int, _Stamps] = {}
        self._split: set[Key] = set()  # rows of logs whose lines name their writers: shown if anything remains for them
        for index in self.streams:
            self._stamps[index] = _Stamps(self.facts.streams[index].summary, (), self.clocks.get(index, 0.0))

    def look(self, heard: Mapping[int, StreamActivity], span: Span | None, columns: int) -> list[RowActivity]:
        """Return all rows: ranks, then nodes, then logs."""
        for index in self.streams:
            activity = heard.get(index, StreamActivity())
            summary = self.facts.streams[index].summary
            if activity.stamps:
                self._stamps[index] = _Stamps(summary, activity.stamps, self.clocks.get(index, 0.0))
            self._stream(index, activity, span, columns)
        for index, place, item in self._mishaps():
            self._row(place, index).erred(item)
        for index, place, item in self._ended():
            row = self._row(place, index)
            row.error = row.error or item
        keys = sorted(self.rows, key=lambda key: (_ORDER.index(key[0]), key[2], key[1]))
        return [row for key in keys if not (row := self.rows[key]).idle or key not in self._split]

    def _stream(self, index: int, told: StreamActivity, span: Span | None, columns: int) -> None:
        summary, shift = self.facts.streams[index].summary, self.clocks.get(index, 0.0)
        own = self._row(self.places.place(index, summary.ref.resource), index)
        voices = told.voices if shared(summary) else ()
        if voices:
            self._split.add(own.key)
        own.clock = shift or own.clock
        for voice in voices or _kept_voices(summary):
            row = self._row(self.places.place(index, voice.who), index)
            row.clock = shift or row.clock
            if voices:
                times = [time - shift for time, _ in voice.said]
                last = None if voice.last is None else voice.last - shift
                row.heard(min(times, default=last), last)
            for time, size in voice.said:
                _add(row.cells, span, columns, time - shift, size)
        if not any(voice.who.rank is not None or voice.who.local_rank is not None for voice in voices):
            first, last = summary.first_time, summary.last_time
            own.heard(None if first is None else first - shift, None if last is None else last - shift)
            if not voices:
                self._stamps[index].fill(own.cells, span, columns)
        for point in self._steps(index):
            if point.step is not None:
                row = own if point.rank is None else self._row(Place(point.rank), index)
                row.stepped_to(point.step, self._stamps[index].time(point.offset, point.time))

    def _steps(self, index: int) -> Iterator[ProgressPoint]:
        """Yield the lines of a log that may name the last step of a row: of the whole run, and of a rank's own part in it."""
        stream = self.facts.streams[index]
        series = stream.summary.series
        for points, mask in (
            (stream.points, series.mask),
            (tuple(point for point in series.points if point.format == OWN), series.beside_mask),
        ):
            yield from points if shared(stream.summary) and not mask else points[-LAST_POINTS:]

    def _row(self, place: Place, index: int) -> RowActivity:
        key = self._key(place, index)
        if key not in self.rows:
            self.rows[key] = RowActivity(
                key, Place(place.rank, place.node or self.places.node_of(place.rank), place.local)
            )
        return self.rows[key]

    def _key(self, place: Place, index: int) -> Key:
        if place.rank is not None:
            return "rank", "", place.rank
        if place.local is not None:
            return "process", place.node or "", place.local
        if place.node is not None:
            return "node", place.node, 0
        return "log", self.facts.streams[index].summary.ref.uri, 0

    # errors

    def _mishaps(self) -> Iterator[tuple[int, Place, RowError]]:
        """Yield the errors by row: lines of the diagnoses, and fatal lines of logs that were not survived."""
        for diagnosis in self._report.diagnoses:
            yield from self._diagnosed(diagnosis)
        rules = {item.rule: item for item in reversed(self._report.diagnoses)}
        cause = self.cause()
        for index in self.streams:
            stream = self.facts.streams[index]
            for key, hits in stream.summary.hits.items():
                rule_text = rules.get(key.partition("#")[0])
                for place in hits.places() if rule_text else ():
                    if not rule_text:
                        continue
                    time = self._stamps[index].time(place.offset, place.time)
                    # after the first cause, the steps that follow do not undo it: a loss that is NaN is logged on
                    fell = rule_text.rank == 1 and time is not None and cause is not None and time >= cause
                    if fell or not self.facts.survived(index, place.offset, place.time, place.resource.rank):
                        one = RowError(time, rule_text.title, rule_text.rank == 1)
                        yield index, self.places.place(index, place.resource), one
            for shown in stream.summary.structures:
                what = _what(shown)
                if what and not self.facts.survived(index, shown.offset, shown.time, shown.resource.rank):
                    time = self._stamps[index].time(shown.offset, shown.time)
                    yield index, self.places.place(index, shown.resource), RowError(time, what)

    def _ended(self) -> Iterator[tuple[int, Place, RowError]]:
        """Yield launchers' reports of how ranks ended, to the second, except their own SIGTERM."""
        for index, item in self.facts.structures("elastic_failure"):
            code = str(item.fields.get("signal") or item.fields.get("exitcode") or "")
            if index in self._stamps and code not in ("", "SIGTERM", "-15"):
                how = code if item.fields.get("signal") else f"exit code {code}"
                yield (
                    index,
                    self.places.place(index, item.resource),
                    RowError(item.time, cleaned(f"ended by {how}", 40)),
                )

    def _diagnosed(self, diagnosis: Diagnosis) -> Iterator[tuple[int, Place, RowError]]:
        for item in diagnosis.evidence:
            index = self._sources.get(item.source)
            if index is None or item.kind not in ("line", "series") or item.offset is None:
                continue
            who = self.facts.streams[index].summary.ref.resource
            rank = who.rank if item.rank is None else item.rank
            place = self.places.place(index, replace(who, node=item.node or who.node, rank=rank))
            stamps = self._stamps.get(index)
            time = stamps.time(item.offset, item.time) if stamps else item.time
            yield index, place, RowError(time, diagnosis.title, diagnosis.rank == 1)

    def cause(self) -> float | None:
        """Return when the first cause was first seen: in suspects' lines, else in any evidence or the report."""
        if not self._report.diagnoses:
            return None
        best = self._report.diagnoses[0]
        ranks = {who.rank for who in best.suspects if who.rank is not None}
        told = [(index, item.time) for index, _, item in self._diagnosed(best) if item.time is not None]
        own = [time for index, time in told if self.facts.streams[index].summary.ref.resource.rank in ranks]
        return min(own or [time for _, time in told], default=best.first_seen)


_ORDER = ("rank", "process", "node", "log")


def cleaned(text: str, most: int) -> str:
    """Return untrusted text on one line, cut in the middle; unprintable characters become question marks."""
    plain = "".join(item if item.isprintable() else " " if item in "\t\n\r" else "?" for item in text[: 8 * most])
    plain = " ".join(plain.split())
    return plain if len(plain) <= most else f"{plain[: most // 2]}…{plain[-(most - most // 2 - 1) :]}"


def is_log(summary: StreamSummary) -> bool:
    """Whether a stream is text written by the job itself."""
    return summary.ref.kind == "job" and summary.size > 0


def shared(summary: StreamSummary) -> bool:
    """Whether several ranks may write to a log."""
    return summary.ref.resource.rank is None and summary.ref.resource.local_rank is None


def _what(structure: Structure) -> str:
    """Return a short text for a structure's error; empty if it is not the process's own."""
    if structure.kind == "exception":
        kind = str(structure.fields.get("type") or "").rpartition(".")[2]
        return "" if structure.fields.get("lived_with") else kind or "exception"
    return _ENDINGS.get(structure.kind, "")


class _Stamps:
    """The known timestamps of one log, by offset, converted to the common clock."""

    def __init__(self, summary: StreamSummary, more: Iterable[tuple[int, float]], shift: float) -> None:
        found = dict(known_stamps(summary))
        found.update(more)
        self._shift = shift
        self._pairs = [(offset, time - shift) for offset, time in sorted(found.items()) if math.isfinite(time)]
        self._offsets = [offset for offset, _ in self._pairs]
        self._end = summary.size

    def time(self, offset: int, told: float | None = None) -> float | None:
        """Return the time of a line: its own, else that of the last timestamp before it."""
        if told is not None:
            return told - self._shift
        place = bisect_right(self._offsets, offset) - 1
        return self._pairs[place][1] if place >= 0 else None

    def fill(self, cells: dict[int, float], span: Span | None, columns: int) -> None:
        """Distribute the log's volume over columns; evenly between timestamps far apart."""
        if span is None or not self._pairs:
            return
        for (begin, time), (end, later) in pairwise((*self._pairs, (self._end, self._pairs[-1][1]))):
            if end - begin <= CLOSE or later <= time:
                _add(cells, span, columns, time, end - begin)
                continue
            width = (span[1] - span[0]) / columns
            low, high = max(time, span[0]), min(later, span[1])
            count = math.ceil((high - low) / width) if high > low else 0
            for at in range(count):
                _add(cells, span, columns, low + at * width, (end - begin) * width / (later - time))


def known_stamps(summary: StreamSummary) -> Iterator[tuple[int, float]]:
    """Yield (offset, time) pairs of a log, as far as its summary keeps them."""
    if summary.first_time is not None and summary.last_time is not None:
        yield 0, min(summary.first_time, summary.last_time)
        yield max(0, summary.size - 1), max(summary.first_time, summary.last_time)
    for point in summary.series.points:
        if point.time is not None:
            yield point.offset, point.time


def _kept_voices(summary: StreamSummary) -> Iterator[Voice]:
    """Yield the writers of a shared log that could not be read again, from the lines in its summary."""
    if not shared(summary):
        return
    volumes: dict[int, dict[int, float]] = {}
    lines: list[ProgressPoint | Structure] = [*summary.series.points, *summary.structures]
    for line in lines:
        rank = line.rank if isinstance(line, ProgressPoint) else line.resource.rank
        if rank is not None and line.time is not None:
            volumes.setdefault(rank, {})[line.offset] = line.time
    for rank, times in sorted(volumes.items()):
        yield Voice(Resource(rank=rank), tuple((time, 1) for time in times.values()))


def _add(cells: dict[int, float], span: Span | None, columns: int, time: float, size: float) -> None:
    if span is not None and span[0] <= time <= span[1] and size > 0:
        column = min(columns - 1, int((time - span[0]) / (span[1] - span[0]) * columns))
        cells[column] = cells.get(column, 0.0) + size


def levels(cells: Mapping[int, float], columns: int) -> str:
    """Return one digit per column: 0 for silence, 9 for the row's own usual volume and more.

    A row that writes one line a minute is not silent in between: its usual gaps are filled.
    """
    places = sorted(cells)
    gaps = sorted(after - before for before, after in pairwise(places))
    usual = gaps[int(QUIET * (len(gaps) - 1))] if len(gaps) >= LEAST_GAPS else 1
    even = {place: _mean(cells[near] for near in (place - 1, place, place + 1) if near in cells) for place in places}
    full = sorted(even.values())[int(QUIET * (len(even) - 1))] if even else 1.0
    drawn = [0] * columns
    for place, after in pairwise((*places, places[-1] + 1) if places else ()):
        level = max(1, min(9, round(9 * math.sqrt(even[place] / full))))
        stop = after if after - place <= usual + max(1, usual // 4) else place + 1
        drawn[place:stop] = [level] * (stop - place)
    return "".join(map(str, drawn[:columns]))


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)


def _clocks(facts: Facts, places: Places, streams: Sequence[int]) -> dict[int, float]:
    """Return stream → seconds by which its clock is ahead; ranks of one job end the same step at the same time.

    Logs without steps use the clock of their node.
    """
    last_steps = {index: _last_steps(facts.streams[index].points) for index in streams}
    job = facts.evidence.job
    now = next((item for item in (job.collected_at, job.end) if item is not None), math.inf) + CLOCK
    seen: dict[int, list[float]] = {}
    for times in last_steps.values():
        for step, time in times.items():
            seen.setdefault(step, []).append(time)
    enough = ((step, times) for step, times in seen.items() if len(times) >= LEAST_CLOCKS)
    # a clock ahead of the job's end is wrong, however many agree with it
    middle = {step: median_low([time for time in times if time <= now] or times) for step, times in enough}
    found: dict[int, float] = {}
    nodes: dict[str, list[float]] = {}
    for index, times in last_steps.items():
        lags = [time - middle[step] for step, time in times.items() if step in middle]
        if not lags:
            continue
        lag = median(lags)
        even = max(abs(item - lag) for item in lags) <= max(CLOCK, 0.2 * abs(lag))
        found[index] = lag if abs(lag) > CLOCK and even else 0.0
        node = places.place(index, facts.streams[index].summary.ref.resource).node
        if node is not None:
            nodes.setdefault(node, []).append(found[index])
    for index in streams:
        node = places.place(index, facts.streams[index].summary.ref.resource).node
        lags = nodes.get(node or "", [])
        if index not in found and lags and max(lags) - min(lags) <= CLOCK:
            found[index] = median(lags)
    return {index: lag for index, lag in found.items() if lag}


def _last_steps(points: Sequence[ProgressPoint]) -> dict[int, float]:
    """Return step → time of a log's last iteration lines."""
    return {p.step: p.time for p in points[-LAST_POINTS:] if p.step is not None and p.time is not None}
