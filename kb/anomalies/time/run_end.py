"""When a run turned, when its lines were written, and how near the two are."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from kb.anomalies.core.clock_skew import corrected
from kb.anomalies.core.run import LineRef, RunProfile

JUST_BEFORE = 3.0  # seconds before the last step in which the cause of the end may be printed
SOON = 60.0


@dataclass(frozen=True, slots=True)
class RunEnding:
    """When a run turned: `at`, its last step or where it changed; `crashed`: no step came after that.

    `begun`, `over`: its first and last line. `interval`: seconds between step lines. `well`: it ended as it should.
    """

    at: float | None
    begun: float | None
    over: float | None
    interval: float
    crashed: bool
    well: bool


class LineTimes:
    """When a line without a time of its own was written: not before the line above it, and just before the next with a later time."""

    def __init__(self, run: RunProfile, off: Mapping[str, float]) -> None:
        self._off = off
        told: dict[str, list[tuple[int, float]]] = defaultdict(list)
        spots = [spot for event in run.events.values() for seen in event.nodes.values() for spot in seen.spots]
        for spot in (*spots, *(beat.spot for beat in run.beats)):
            when = corrected(spot, off)
            if when is not None and spot.dated:
                told[spot.source].append((spot.offset, when))
        self._told = {source: sorted(places) for source, places in told.items()}

    def time(self, spot: LineRef) -> float | None:
        """The line's time, or the time of the next later line."""
        when = corrected(spot, self._off)
        if spot.dated and when is not None:
            return when
        places = self._told.get(spot.source, [])
        for _, other in places[bisect_right(places, (spot.offset, math.inf)) :]:
            if when is None or other > when:
                return other
        return when

    def is_open(self, spot: LineRef) -> bool:
        """Whether neither a line nor any later line of its source has a time, so that it may have been written at any later time."""
        places = self._told.get(spot.source, [])
        return not spot.dated and bisect_right(places, (spot.offset, math.inf)) == len(places)


def nearness(time: float | None, ending: RunEnding, wave: float | None) -> float:
    """0 to 1: how near to the turn a line is. A line without a time may be anywhere."""
    if time is None:
        return 0.75
    if ending.at is None:
        if wave is None or time > wave + SOON:
            return 0.8
        return 0.6 + 0.4 * math.exp(-abs(wave - time) / 120.0)
    before = ending.at - time
    if before > max(JUST_BEFORE, 1.2 * ending.interval):
        return 0.3 + 0.45 * math.exp(-before / max(240.0, 10 * ending.interval))
    after = (wave if wave is not None and ending.crashed else ending.at) + SOON
    if time <= after:
        return 1.0
    return 0.5 + 0.5 * math.exp(-(time - after) / (240.0 if ending.crashed else 900.0))
