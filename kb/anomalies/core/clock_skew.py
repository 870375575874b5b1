"""Aligns the times of a run's lines: zones within a node, and clocks of nodes that are far off.

Lines without a zone are read as UTC although most are in local time, so lines that name their zone appear hours apart from them. A line
without a time carries that of an earlier one.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from operator import is_
from statistics import median

from kb.anomalies.core.run import LineRef, NodeEvent, RunProfile, StepLine

FEWEST = 4  # events that nodes must share, each with its first and last line
SMALLEST = 30.0  # seconds; smaller differences are due to the nodes' work, not their clocks
HALF_HOUR = 1800.0
FAR = 12 * 3600.0  # seconds between two lines that are kept
ROOM = 120.0  # seconds by which lines of one source may be out of order
WRONG_ZONE = (
    26 * 3600.0
)  # seconds; a larger difference is not a clock's, but another reported time, such as when a machine started
YEAR = 365 * 86400.0
_ZONED = re.compile(r"\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)\b")


def align_clocks(run: RunProfile, start: float | None = None) -> RunProfile:
    """The run with all lines on one clock. `start`: the scheduler's start time of the job, seconds since the epoch."""
    run = _of_job(_in_year(run, start))
    shift = _shift(run, start)
    near = _Neighbours(run, shift)

    def spot(line_ref: LineRef) -> LineRef:
        time = near.time(line_ref)
        return line_ref if time == line_ref.time else replace(line_ref, time=time)

    moved = _moved(run, spot)
    return replace(
        moved, turns=tuple(replace(turn, spot=replace(turn.spot, time=near.before(turn.spot))) for turn in run.turns)
    )


def _in_year(run: RunProfile, start: float | None) -> RunProfile:
    """The run with lines without a year that were read a year off around New Year moved to the year in which it ran."""
    times = [spot.time for spot in _spots(run) if spot.time is not None]
    if not times:
        return run
    middle = start if start is not None else median(times)
    if max(times) - middle < YEAR * 0.9 and middle - min(times) < YEAR * 0.9:
        return run

    def spot(line_ref: LineRef) -> LineRef:
        if line_ref.time is None or abs(line_ref.time - middle) < YEAR * 0.9:
            return line_ref
        years = round((middle - line_ref.time) / (YEAR + 0.25 * 86400))
        return replace(line_ref, time=_years_on(line_ref.time, years))

    return _moved(run, spot)


def _of_job(run: RunProfile) -> RunProfile:
    """The run without times that are later than its end by more than clocks are off: they are not when the line was written."""
    if run.latest is None:
        return run
    last = run.latest + WRONG_ZONE

    def spot(line_ref: LineRef) -> LineRef:
        late = line_ref.time is not None and line_ref.time > last
        return replace(line_ref, time=None, dated=False) if late else line_ref

    return _moved(run, spot)


def _years_on(time: float, years: int) -> float:
    """A time in another year, on the same day."""
    then = datetime.fromtimestamp(time, UTC)
    day = min(then.day, 28) if then.month == 2 else then.day
    return then.replace(year=then.year + years, day=day).timestamp()


def _moved(run: RunProfile, spot: Callable[[LineRef], LineRef]) -> RunProfile:
    """The run with each of its lines changed; lines that stay the same are not copied, because there may be millions."""

    def node(seen: NodeEvent) -> NodeEvent:
        spots = tuple(map(spot, seen.spots))
        return seen if all(map(is_, spots, seen.spots)) else NodeEvent(seen.count, spots, seen.voices)

    def beat(step_line: StepLine) -> StepLine:
        moved = spot(step_line.spot)
        return step_line if moved is step_line.spot else replace(step_line, spot=moved)

    events = {
        name: replace(event, nodes={unit: node(seen) for unit, seen in event.nodes.items()})
        for name, event in run.events.items()
    }
    return replace(
        run,
        events=events,
        beats=tuple(map(beat, run.beats)),
        turns=tuple(replace(turn, spot=spot(turn.spot)) for turn in run.turns),
        voices=tuple(replace(voice, last=spot(voice.last) if voice.last else None) for voice in run.voices),
    )


def _spots(run: RunProfile) -> Iterator[LineRef]:
    return (spot for event in run.events.values() for seen in event.nodes.values() for spot in seen.spots)


def _is_zoned(spot: LineRef) -> bool:
    return _ZONED.search(spot.text[:160]) is not None


def _shift(run: RunProfile, start: float | None) -> float:
    """Seconds that lines without a zone are ahead of UTC: a whole number of half hours."""
    dated: dict[str, list[tuple[int, float, bool]]] = defaultdict(list)
    for spot in _spots(run):
        if spot.dated and spot.time is not None:
            dated[spot.source].append((spot.offset, spot.time, _is_zoned(spot)))
    votes: dict[float, float] = defaultdict(float)
    for places in dated.values():
        local = sorted((offset, time) for offset, time, zoned in places if not zoned)
        for offset, time, zoned in places:
            if zoned and local:
                fitting = _fitting(time, local, bisect_left(local, (offset, -math.inf)))
                for value in fitting:
                    votes[value] += 1 / len(fitting)
    if votes:
        return max(votes, key=lambda vote: (votes[vote], -abs(vote), vote))
    local_times = [min(t for _, t, zoned in places) for places in dated.values() if not any(z for *_, z in places)]
    if start is None or not local_times or not any(zoned for places in dated.values() for *_, zoned in places):
        return 0.0
    shift = round((median(local_times) - start) / HALF_HOUR) * HALF_HOUR
    return shift if abs(shift) <= 14 * 3600 else 0.0


def _fitting(time: float, local: Sequence[tuple[int, float]], at: int) -> Sequence[float]:
    """The shifts that put a time between the lines above and below it; few lines are kept, so several shifts may."""
    before = local[at - 1][1] if at else -math.inf
    after = local[at][1] if at < len(local) else math.inf
    if math.isinf(before) or math.isinf(after) or not 0 <= after - before <= FAR:
        beside = before if math.isfinite(before) else after
        return (round((beside - time) / HALF_HOUR) * HALF_HOUR,)
    first, last = math.ceil((before - time - ROOM) / HALF_HOUR), math.floor((after - time + ROOM) / HALF_HOUR)
    return [item * HALF_HOUR for item in range(first, last + 1)]


class _Neighbours:
    """Estimate the time of a line from the lines around it in the same source."""

    def __init__(self, run: RunProfile, shift: float) -> None:
        self._shift = shift
        told: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for spot in _spots(run):
            if spot.dated and spot.time is not None:
                told[spot.source].append((spot.offset, spot.time + (shift if _is_zoned(spot) else 0.0)))
        known = set(told)
        for beat in run.beats:
            if beat.spot.time is not None and beat.spot.source not in known:
                told[beat.spot.source].append((beat.spot.offset, beat.spot.time))
        self._told = {source: sorted(places) for source, places in told.items()}

    def before(self, spot: LineRef) -> float | None:
        """The time of the last line up to one that has a time."""
        places = self._told.get(spot.source, [])
        at = bisect_right(places, (spot.offset, math.inf))
        return places[at - 1][1] if at else (places[0][1] if places else spot.time)

    def time(self, spot: LineRef) -> float | None:
        """A line's time on the common clock."""
        if spot.time is None:
            return self.before(spot)
        if spot.dated and spot.text:
            return spot.time + (self._shift if _is_zoned(spot) else 0.0)
        beside = self.before(spot) if self._shift else None
        if beside is None:
            return spot.time
        return min((spot.time, spot.time + self._shift), key=lambda item: abs(item - beside))


def skews(run: RunProfile) -> Mapping[str, float]:
    """By node, how many seconds its clock is ahead of the others'; only if it is far off, and steadily."""
    nodes = run.heard
    if len(nodes) < 3:
        return {}
    of_job = {voice.source for voice in run.voices if voice.kind == "job"}
    apart: dict[str, list[float]] = defaultdict(list)
    for event in run.events.values():
        for place in (0, -1):
            known = {
                node: time
                for node, seen in event.nodes.items()
                if seen.spots
                and (spot := seen.spots[place]).dated
                and (time := spot.time) is not None
                and spot.source in of_job
            }
            if len(known) * 3 < len(nodes) * 2:
                continue
            middle = median(known.values())
            for node, time in known.items():
                apart[node].append(time - middle)
    off = {}
    for node, gaps in apart.items():
        usual = median(gaps)
        if (
            len(gaps) >= 2 * FEWEST
            and SMALLEST <= abs(usual) <= WRONG_ZONE
            and median([abs(g - usual) for g in gaps]) < abs(usual) / 4
        ):
            off[node] = usual
    return off


def corrected(spot: LineRef, off: Mapping[str, float]) -> float | None:
    """A line's time on the common clock."""
    return None if spot.time is None else spot.time - off.get(spot.node, 0.0)
