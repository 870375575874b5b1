"""Learns a job's pace from its own logs: seconds per step, usual gap between two lines, duration of its phases."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import pairwise
from statistics import median

from kb.facts.log.stream_facts import StreamFacts
from kb.model import ProgressPoint, Stage

LOGS = 32  # number of logs used to learn the job's pace and pauses
_FEW = 8  # minimum number of gaps; nothing is learned from fewer
_SELDOM = 60.0  # minimum seconds between infrequent lines
_SELDOM_LINES = 2  # minimum number of gaps between those
_LATE = 64  # number of line arrivals to keep

PHASES: Mapping[Stage | None, str] = {
    "evaluating": "evaluating",
    "saving": "saving",
    "checkpoint_load": "loading",
    "data_load": "loading",
    "init": "starting",
    "launch": "starting",
}


@dataclass(frozen=True, slots=True)
class _Gap:
    """The time between two iteration lines of one log. `inside`: the phases mentioned between them."""

    steps: int
    seconds: float
    inside: frozenset[str]


def most_informative(streams: Sequence[StreamFacts]) -> list[StreamFacts]:
    """The job's logs with the most step lines. All ranks take the same steps, so a few logs out of ten thousand are enough."""
    some = [stream for stream in streams if stream.points and stream.summary.ref.kind == "job"]
    return nsmallest(LOGS, some, key=lambda log: (-len(log.summary.marks), -len(log.points), log.summary.ref.uri))


def pace_of(streams: Sequence[StreamFacts]) -> float | None:
    """Return the seconds of a recent step, from the log with the most step lines; of only a few, the longest; None without any."""
    for stream_facts in most_informative(streams)[:1]:
        paces = [gap.seconds / gap.steps for gap in _gaps(stream_facts.points[-64:], ())]
        if paces:
            return median(paces) if len(paces) >= _FEW // 2 else max(paces)
    return None


def has_begun(streams: Sequence[StreamFacts]) -> bool:
    """Whether a log shows enough steps, with or without times, to prove that the job is under way."""
    return any(len(stream_facts.points) >= _FEW // 2 for stream_facts in most_informative(streams))


def long_step(streams: Sequence[StreamFacts]) -> float | None:
    """Return the seconds exceeded by one recent step in ten, from the log with the most step lines; None if there are too few."""
    for stream_facts in most_informative(streams)[:1]:
        paces = sorted(
            gap.seconds / gap.steps for gap in _gaps(stream_facts.points[-64:], _marks(stream_facts)) if not gap.inside
        )
        if len(paces) >= _FEW // 2:
            return paces[int(0.9 * len(paces))]
    return None


def usual_gap(streams: Sequence[StreamFacts]) -> float | None:
    """Return the 99th percentile of the seconds between consecutive iteration lines, from the log that is written most often.

    Pairs of lines between which the run evaluated, saved or loaded, according to its own log, do not count. Of a few lines that are
    minutes apart, the longest gap is returned. None if there are too few lines.
    """
    gaps = [list(_gaps(stream_facts.points, _marks(stream_facts))) for stream_facts in most_informative(streams)]
    found = [value for item in gaps if (value := _quantile(item)) is not None]
    if found:
        return min(found)
    # infrequent lines show their pace even if there are only a few
    return min((max(gap.seconds for gap in item) for item in gaps if _seldom(item)), default=None)


def pauses(streams: Sequence[StreamFacts]) -> dict[str, float]:
    """Return the longest time of each phase between two steps of one log, excluding the steps; the key "" means no phase.

    If a pause contains two phases, the time of each is unknown, so the pause counts only for phases that were never
    seen alone.
    """
    alone: dict[str, float] = {}
    shared: dict[str, float] = {}
    for stream_facts in most_informative(streams):
        gaps = list(_gaps(stream_facts.points, _marks(stream_facts)))
        if len(gaps) < _FEW:
            continue
        pace = median(gap.seconds / gap.steps for gap in gaps)
        for gap in gaps:
            into = alone if len(gap.inside) < 2 else shared
            for name in gap.inside or {""}:
                into[name] = max(into.get(name, 0.0), gap.seconds - pace * gap.steps)
    return {**shared, **alone}


@dataclass(slots=True)
class Lateness:
    """Measures the delay of a running job's lines, which block buffers and log shippers can hold back for minutes.

    The watcher reports the lines it sees at each check; the last `_LATE` arrivals are kept.
    """

    newest: dict[str, float] = field(default_factory=dict)
    looked: float | None = None
    late: deque[float] = field(default_factory=lambda: deque(maxlen=_LATE))

    def seen(self, streams: Sequence[StreamFacts], now: float) -> float:
        """Record the iteration lines that are new since the last check, and return the largest delay in seconds.

        A line not visible at the last check was late by at least the time from its own timestamp to that check.
        """
        for stream_facts in most_informative(streams):
            uri, stamps = stream_facts.summary.ref.uri, [p.time for p in stream_facts.points if p.time is not None]
            last = self.newest.get(uri, math.inf if self.looked is None else -math.inf)
            fresh = next((at for at, time in enumerate(reversed(stamps)) if time <= last), len(stamps))
            if self.looked is not None and fresh:
                self.late.append(max(0.0, self.looked - stamps[len(stamps) - fresh]))
            if stamps:
                self.newest[uri] = stamps[-1]
        self.looked = now
        return max(self.late, default=0.0)


def _marks(stream: StreamFacts) -> tuple[tuple[int, str], ...]:
    return tuple((mark.offset, PHASES[mark.stage]) for mark in stream.summary.marks if mark.stage in PHASES)


def _gaps(points: Sequence[ProgressPoint], marks: Sequence[tuple[int, str]]) -> Iterator[_Gap]:
    """Yield the gaps between lines of one log at which both steps and time advance."""
    timed = [
        (p.offset, p.step, p.time) for p in points if p.step is not None and p.time is not None and not p.validation
    ]
    places = [offset for offset, _ in marks]
    for before, after in pairwise(timed):
        steps, seconds = after[1] - before[1], after[2] - before[2]
        if steps > 0 and seconds >= 0:
            inside = marks[bisect_left(places, before[0]) : bisect_left(places, after[0])]
            yield _Gap(steps, seconds, frozenset(name for _, name in inside))


def _seldom(gaps: Sequence[_Gap]) -> bool:
    """Whether a log has a few lines, minutes apart."""
    return len(gaps) >= _SELDOM_LINES and min(gap.seconds for gap in gaps) >= _SELDOM


def _quantile(gaps: Sequence[_Gap]) -> float | None:
    """Return the 99th percentile of the gaps between neighbouring lines that contain nothing but steps."""
    plain = [gap for gap in gaps if not gap.inside]
    if len(plain) < _FEW:
        return None
    usual = sorted(gap.steps for gap in plain)[len(plain) // 2]
    seconds = sorted(gap.seconds for gap in plain if gap.steps == usual)
    return seconds[min(len(seconds) - 1, int(0.99 * len(seconds)))]
