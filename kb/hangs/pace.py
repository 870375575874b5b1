"""What a job's own logs teach of its pace: the seconds of a step, the usual gap between two lines, how long its phases took."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import pairwise
from statistics import median

from kb.facts.stream_facts import StreamFacts
from kb.model import ProgressPoint, Stage

LOGS = 32  # from so many logs the job's own pace and pauses are taken
_FEW = 8  # gaps: of fewer nothing is learned
_LATE = 64  # arrivals of lines

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
    """What lies between two iteration lines of one log. `inside`: the phases that a line between them tells of."""

    steps: int
    seconds: float
    inside: frozenset[str]


def most_informative(streams: Sequence[StreamFacts]) -> list[StreamFacts]:
    """The job's logs that tell most of steps: all ranks take the same ones, so a few logs of ten thousand will do."""
    some = [stream for stream in streams if stream.points and stream.summary.ref.kind == "job"]
    return nsmallest(LOGS, some, key=lambda log: (-len(log.summary.marks), -len(log.points), log.summary.ref.uri))


def pace_of(streams: Sequence[StreamFacts]) -> float | None:
    """Seconds that a step took lately, from the log that tells most; of the first few the longest; None for none."""
    for stream_facts in most_informative(streams)[:1]:
        paces = [gap.seconds / gap.steps for gap in _gaps(stream_facts.points[-64:], ())]
        if paces:
            return median(paces) if len(paces) >= _FEW // 2 else max(paces)
    return None


def has_begun(streams: Sequence[StreamFacts]) -> bool:
    """Whether a log tells of so many steps that the job is under way, with times or without."""
    return any(len(stream_facts.points) >= _FEW // 2 for stream_facts in most_informative(streams))


def long_step(streams: Sequence[StreamFacts]) -> float | None:
    """Seconds that one of ten steps exceeded lately, by the log that tells most; None for too few lines."""
    for stream_facts in most_informative(streams)[:1]:
        paces = sorted(
            gap.seconds / gap.steps for gap in _gaps(stream_facts.points[-64:], _marks(stream_facts)) if not gap.inside
        )
        if len(paces) >= _FEW // 2:
            return paces[int(0.9 * len(paces))]
    return None


def usual_gap(streams: Sequence[StreamFacts]) -> float | None:
    """The 99th percentile of the seconds between two neighbouring iteration lines, of the log that speaks most often.

    What lies between two of them while the run evaluated, saved or loaded, by its own word, is no gap between steps. None
    for too few lines.
    """
    found = [
        _quantile(list(_gaps(stream_facts.points, _marks(stream_facts)))) for stream_facts in most_informative(streams)
    ]
    return min((value for value in found if value is not None), default=None)


def pauses(streams: Sequence[StreamFacts]) -> dict[str, float]:
    """The longest time that each phase took between two steps of one log, beyond what the steps took; "" for no phase.

    Where two phases lie in one pause nobody knows which took how long: that counts for those alone that were never seen by
    themselves.
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
    """How late a running job's lines are seen: block buffers and log shippers keep them back for minutes.

    Who looks at the job tells each time what it sees; the last `_LATE` arrivals are kept.
    """

    newest: dict[str, float] = field(default_factory=dict)
    looked: float | None = None
    late: deque[float] = field(default_factory=lambda: deque(maxlen=_LATE))

    def seen(self, streams: Sequence[StreamFacts], now: float) -> float:
        """Note the iteration lines that are new since the last look; give the seconds by which lines were late, at most.

        A line that was not there at the last look was late by then for as long as its own time lies before it.
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
    """The gaps between the lines of one log, where steps and time go on."""
    timed = [
        (p.offset, p.step, p.time) for p in points if p.step is not None and p.time is not None and not p.validation
    ]
    places = [offset for offset, _ in marks]
    for before, after in pairwise(timed):
        steps, seconds = after[1] - before[1], after[2] - before[2]
        if steps > 0 and seconds >= 0:
            inside = marks[bisect_left(places, before[0]) : bisect_left(places, after[0])]
            yield _Gap(steps, seconds, frozenset(name for _, name in inside))


def _quantile(gaps: Sequence[_Gap]) -> float | None:
    """The 99th percentile of the gaps in which nothing but steps lies, between lines that are neighbours."""
    plain = [gap for gap in gaps if not gap.inside]
    if len(plain) < _FEW:
        return None
    usual = sorted(gap.steps for gap in plain)[len(plain) // 2]
    seconds = sorted(gap.seconds for gap in plain if gap.steps == usual)
    return seconds[min(len(seconds) - 1, int(0.99 * len(seconds)))]
