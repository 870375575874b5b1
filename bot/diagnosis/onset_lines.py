"""Reads the lines at which ranks became slow, which the summary of a long log leaves out, so that pictures mark the true step.

Of each stretch of steps in which ranks became slow, the logs of a bounded number of ranks are read, and of each a bounded part, however
long it is. Unreadable and compressed logs are skipped; their summaries stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from connectors.bundles.streams import StreamReader, is_plain
from kb.facts.evidence import Evidence
from kb.model import ProgressPoint, Resource, StreamRef
from kb.report import Report
from kb.scanning.part_lines import points_in
from kb.scanning.summary import StreamSummary
from kb.timeline.heat import Onset, onsets
from kb.timeline.per_step import points_by_log
from kb.values import dataclass

SLOW_RANKS = 24  # whose lines are read
PEERS = 8  # more than slow ranks, whose median tells that those are slow
WHOLE = 128 * 1024  # bytes of a log that are read for one onset; a longer part is halved first
BLOCK = 16 * 1024  # bytes read to halve it

_Known = dict[Resource, dict[int, list[ProgressPoint]]]  # rank → log → its lines that have the quantity
# whether a line is behind the place that is searched; None if it does not tell
_IsLate = Callable[[ProgressPoint], bool | None]


def with_onsets(evidence: Evidence, report: Report, root: Path | None) -> Evidence:
    """Return the evidence with the iteration lines around the steps at which ranks became slow. `root`: the folder of the logs."""
    found = onsets(evidence, report)
    if not found:
        return evidence
    known: _Known = {}
    for index, who, point in points_by_log(evidence):
        if getattr(point, found[0].metric) is not None:
            known.setdefault(who, {}).setdefault(index, []).append(point)
    streams = list(evidence.streams)
    for (before, after), slow in _windows(found).items():
        for index, new in _around(evidence, root, known, slow, (found[0].metric, before, after)).items():
            streams[index] = _with_points(streams[index], new)
    return replace(evidence, streams=tuple(streams))


def _around(
    evidence: Evidence, root: Path | None, known: _Known, slow: Sequence[Resource], window: tuple[str, int, int]
) -> dict[int, list[ProgressPoint]]:
    """Return log → its lines of the steps in which these ranks became slow, also of as many peers. `window`: metric, first, last step."""
    metric, before, after = window
    found: dict[int, list[ProgressPoint]] = {}
    for who in slow[:SLOW_RANKS]:
        for index, points in known[who].items():
            if index not in found:
                log = _Log(evidence.streams[index], root, who.rank)
                found[index] = log.around(points, before, after, _by_value(points, metric, before, after))
    steps = [p.step for new in found.values() for p in new if p.step is not None and before <= p.step <= after]
    peers = [who for who in known if who.rank is not None and who not in slow]
    for who in _spread(peers, len(slow[:SLOW_RANKS]) + PEERS) if steps else ():
        for index, points in known[who].items():
            if index not in found:
                log = _Log(evidence.streams[index], root, who.rank)
                found[index] = log.around(points, before, after, _by_step(min(steps)))
    return found


def _windows(found: Iterable[Onset]) -> dict[tuple[int, int], list[Resource]]:
    """Return the steps between which ranks became slow, with these ranks."""
    windows: dict[tuple[int, int], list[Resource]] = {}
    for onset in found:
        windows.setdefault((onset.before, onset.after), []).append(onset.who)
    return windows


def _spread(ranks: Sequence[Resource], most: int) -> Sequence[Resource]:
    return ranks[:: -(-len(ranks) // most)] if ranks else ranks


def _by_value(points: Sequence[ProgressPoint], metric: str, before: int, after: int) -> _IsLate:
    """Return what tells a rank's slow steps, by the middle between its values around the onset."""
    value = {point.step: float(getattr(point, metric)) for point in points}
    middle = (value.get(before, 0.0) + value.get(after, 0.0)) / 2

    def is_late(point: ProgressPoint) -> bool | None:
        own = getattr(point, metric)
        return None if own is None else float(own) > middle

    return is_late


def _by_step(first: int) -> _IsLate:
    """Return what tells the steps behind one."""
    return lambda point: None if point.step is None else point.step > first


def _with_points(summary: StreamSummary, new: Iterable[ProgressPoint]) -> StreamSummary:
    every = {point.offset: point for point in (*new, *summary.series.points)}
    return replace(summary, series=replace(summary.series, points=tuple(every[at] for at in sorted(every))))


@dataclass(frozen=True, slots=True)
class _Log:
    """A log with its summary, of which parts are read again. `rank`: the one that is looked at, of those that write it."""

    summary: StreamSummary
    root: Path | None
    rank: int | None

    def around(self, points: Sequence[ProgressPoint], before: int, after: int, is_late: _IsLate) -> list[ProgressPoint]:
        """Return the lines in between those of two steps, or the part of them where lines become late."""
        low = max((p.offset for p in points if p.step is not None and p.step <= before), default=0)
        high = min((p.offset for p in points if p.step is not None and p.step >= after and p.offset > low), default=low)
        with suppress(OSError, ValueError):  # the name may not be a valid file name
            if high > low and is_plain(self._ref()):
                while high - low > WHOLE:
                    middle = (low + high) // 2
                    own = (point for point in self._read(middle, middle + BLOCK) if point.rank in (None, self.rank))
                    late = next((late for point in own if (late := is_late(point)) is not None), None)
                    if late is None:
                        return []
                    low, high = (low, middle + BLOCK) if late else (middle, high)
                return self._read(max(0, low - 1), high + BLOCK)
        return []

    def _ref(self) -> StreamRef:
        uri = self.summary.ref.uri
        return StreamRef(str(self.root / uri if self.root else Path(uri)), self.summary.ref.resource)

    def _read(self, start: int, stop: int) -> list[ProgressPoint]:
        data = b"".join(StreamReader(self._ref(), start, stop))
        return list(points_in(data, start, self.summary, self._year()))

    def _year(self) -> int | None:
        with suppress(ValueError, OverflowError, OSError):
            return datetime.fromtimestamp(self.summary.last_time or 0.0, UTC).year
        return None
