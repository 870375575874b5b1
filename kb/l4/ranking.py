"""Which events tell the failure: those that are new, tell harm, stand near the end, and are no consequence."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kb.l4.clocks import corrected
from kb.l4.cross import Compared
from kb.l4.run import Event, Run, Spot
from kb.l4.temporal import Change, Course
from kb.l4.words import harm, is_body, is_consequence, is_raised

JUST_BEFORE = 3.0  # seconds before the last step, in which what ends a run may be said
SOON = 60.0
LIVED_WITH = 0.45  # harm of an exception after which steps were done
AT_ONCE = 2.0  # seconds behind the first consequence
MOST_OF_ALL = 0.6  # share of the nodes
FAINTEST = 0.35
CASCADE = 0.12  # what a consequence is worth
WELL = frozenset({"COMPLETED", "SUCCEEDED", "RUNNING", ""})


@dataclass(frozen=True, slots=True)
class Weighed:
    """An event with its worth, 0 to 1, the line that shows it best, and why it is told."""

    event: Event
    score: float
    spot: Spot
    fresh: float
    harm: float
    near: float
    consequence: bool
    why: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ending:
    """When a run turned: `at`, its last step or where it became another; `crashed`: no step came after that.

    `begun`, `over`: its first and last line. `interval`: seconds between step lines. `well`: it ended as it should.
    """

    at: float | None
    begun: float | None
    over: float | None
    interval: float
    crashed: bool
    well: bool


def ending_of(run: Run, course: Course, turned: Sequence[Change], off: Mapping[str, float]) -> Ending:
    """When and how a run turned."""
    times = [
        t
        for event in run.events.values()
        for seen in event.nodes.values()
        for spot in (seen.spots[0], seen.spots[-1])
        if (t := corrected(spot, off)) is not None
    ]
    well = run.state.upper() in WELL
    at, crashed = course.stopped, not well
    if turned:
        when = corrected(turned[0].beats[0].spot, off)
        at, crashed = (when if when is not None else at), False
    return Ending(at, min(times, default=None), max(times, default=None), course.interval or 10.0, crashed, well)


def weigh(
    run: Run,
    compared: Mapping[str, Compared],
    ending: Ending,
    off: Mapping[str, float],
    known: Mapping[tuple[str, int], float] | None = None,
) -> tuple[Weighed, ...]:
    """All events that may tell the failure, the most telling first. `known`: by source and offset what a rule's word adds."""
    look = _Look(len(run.heard), ending, _wave(run, compared, ending, off), _Behind(run, off), known or {})
    steps = {(beat.spot.source, beat.spot.offset) for beat in run.beats}
    found = []
    for event in run.events.values():
        against = compared.get(event.id)
        fresh = against.fresh if against else 0.5
        spots = (spot for seen in event.nodes.values() for spot in seen.spots)
        if any((spot.source, spot.offset) in steps for spot in spots):
            continue  # its words name what it measures; `temporal` reads its numbers
        if fresh >= 0.1 and not is_body(event.text):
            found.append(look.weigh(event, fresh, against))
    found.sort(key=lambda one: (-one.score, one.event.id))
    return tuple(found)


class _Behind:
    """When a line without a time of its own was written: not before the line above it, and just before the next with a later time."""

    def __init__(self, run: Run, off: Mapping[str, float]) -> None:
        self._off = off
        told: dict[str, list[tuple[int, float]]] = defaultdict(list)
        spots = [spot for event in run.events.values() for seen in event.nodes.values() for spot in seen.spots]
        for spot in (*spots, *(beat.spot for beat in run.beats)):
            when = corrected(spot, off)
            if when is not None and spot.dated:
                told[spot.source].append((spot.offset, when))
        self._told = {source: sorted(places) for source, places in told.items()}

    def time(self, spot: Spot) -> float | None:
        """The line's time, or that of the next line that is later."""
        when = corrected(spot, self._off)
        if spot.dated and when is not None:
            return when
        places = self._told.get(spot.source, [])
        for _, other in places[bisect_right(places, (spot.offset, math.inf)) :]:
            if when is None or other > when:
                return other
        return when


def _wave(run: Run, compared: Mapping[str, Compared], ending: Ending, off: Mapping[str, float]) -> float | None:
    """When the first consequence came after the turn, of those that the good run has not as often."""
    times = [
        t
        for event in run.events.values()
        if is_consequence(event.text) and ((one := compared.get(event.id)) is None or one.fresh >= 0.5)
        for seen in event.nodes.values()
        for spot in seen.spots
        if (t := corrected(spot, off)) is not None and (ending.at is None or t >= ending.at - 1)
    ]
    return min(times, default=None)


def nearness(time: float | None, ending: Ending, wave: float | None) -> float:
    """0 to 1: how near the turn a line stands. A line without a time may stand anywhere."""
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


@dataclass(frozen=True, slots=True)
class _Look:
    """What is known of the run when one of its events is weighed."""

    nodes: int
    ending: Ending
    wave: float | None
    behind: _Behind
    known: Mapping[tuple[str, int], float]

    def weigh(self, event: Event, fresh: float, against: Compared | None) -> Weighed:
        near, when, spot = self._best(event)
        told = max(harm(event.text, event.level), harm(spot.text, event.level) if spot.text else 0.0)
        consequence = is_consequence(event.text) or is_consequence(spot.text)
        raised = (is_raised(event.text) or is_raised(spot.text)) and not consequence
        passed = when is not None and self.ending.at is not None and when < self.ending.at - JUST_BEFORE
        if raised:
            told = LIVED_WITH if passed and self.ending.crashed else 1.0
        elif not consequence:
            spots = (one for seen in event.nodes.values() for one in seen.spots)
            told = min(1.0, told + max((self.known.get((one.source, one.offset), 0.0) for one in spots), default=0.0))
        score = told * near * (0.4 + 0.6 * fresh)
        if consequence:
            score *= CASCADE
        elif not raised and self._late(when):
            score *= 0.5
        score *= self._spread(event, passed=passed)
        why = [against.why] if against and against.why else []
        if len(event.nodes) <= max(1, self.nodes // 8) and self.nodes > 2:
            why.append(f"on {len(event.nodes)} of {self.nodes} nodes")
        return Weighed(event, min(1.0, score), spot, fresh, told, near, consequence, tuple(why))

    def _best(self, event: Event) -> tuple[float, float | None, Spot]:
        """The line that stands nearest the turn, the first of several."""
        timed = [
            (nearness(when := self.behind.time(spot), self.ending, self.wave), when, spot)
            for seen in event.nodes.values()
            for spot in seen.spots
        ]
        near = max(one[0] for one in timed)
        return min(
            (one for one in timed if one[0] >= near - 1e-9),
            key=lambda one: (one[1] is None, one[1] or 0.0, one[2].source, one[2].offset),
        )

    def _late(self, when: float | None) -> bool:
        return self.wave is not None and when is not None and self.ending.crashed and when > self.wave + AT_ONCE

    def _spread(self, event: Event, *, passed: bool) -> float:
        """Less than 1 for what nearly all said while they went on, and for what some said at times that do not belong together."""
        share = len(event.nodes) / max(1, self.nodes)
        if not passed:
            return 1.0
        if share > MOST_OF_ALL and self.nodes > 2:
            return 0.2
        return 0.6 if len(event.nodes) > 1 and not _together(event, self.behind, self.ending) else 1.0


def _together(event: Event, before: _Behind, ending: Ending) -> bool:
    """Whether all nodes that said it said it within a short time."""
    firsts = [t for seen in event.nodes.values() if (t := before.time(seen.spots[0])) is not None]
    return len(firsts) > 1 and max(firsts) - min(firsts) <= max(30.0, 2 * ending.interval)


def choose(
    weighed: Sequence[Weighed], *, most: int = 4, least: float = 0.5, share: float = 0.55
) -> tuple[Weighed, ...]:
    """The events worth telling: those that come near the first."""
    if not weighed:
        return ()
    first = weighed[0]
    if FAINTEST <= first.score < least and first.near > 0.9 and first.fresh > 0.9 and not first.consequence:
        return (first,)  # little, and yet what there is
    bar = max(least, share * first.score)
    return tuple(one for one in weighed[:most] if one.score >= bar)
