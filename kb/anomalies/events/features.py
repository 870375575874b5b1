"""Measures what suggests that an event indicates the failure: it is new, near the end, rare among peers, harmful in its words.

Each feature is a property that any log has; none knows particular messages. A model (kb.anomalies.events.model), fitted on synthetic
runs, gives each its weight.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from kb.anomalies.core.blocks import is_behind_bars, is_part
from kb.anomalies.core.run import JOB, LineRef, NodeEvent, RunEvent, RunProfile
from kb.anomalies.core.severity_words import (
    by_signal,
    harm,
    is_aside,
    is_consequence,
    is_grave,
    is_ignored,
    is_mild,
    is_raised,
    is_uneasy,
    of_machine,
    skeleton,
)
from kb.anomalies.events.survival import STEPS_BEHIND, Survival
from kb.anomalies.events.tracebacks_below import TracebacksBelow
from kb.anomalies.events.values import is_higher, value_beyond
from kb.anomalies.runs.baseline_diff import IGNORED, NEW, EventComparison
from kb.anomalies.time.run_end import JUST_BEFORE, LineTimes, RunEnding, nearness

OFTEN = 4  # times its peers' count from which on a node prints an event more than they do
CAUGHT = 0.5  # how much the harm of an exception counts that was caught
KNOWN = 0.25  # `fresh` up to which healthy runs raise an exception, too, and live on
SHORTLY = 1.0  # seconds before the last step in which what ended it may begin
CHAIN = 6000  # bytes between the exceptions of one chain


@dataclass(frozen=True, slots=True)
class MeasuredEvent:
    """An event with its features, the line that shows it best, and when that was written.

    `caught`: an exception after which the job continued, or what introduces one; `ends_near`: its last line on `nodes` came near the
    turn; `higher`: a number there is farther from those of the other nodes than theirs are from each other; `passed`: the ranks that wrote
    it continued; `begun`: when its
    first line was written; `sudden`: not before the run turned.
    """

    event: RunEvent
    spot: LineRef
    when: float | None
    near: float
    fresh: float
    harm: float
    consequence: bool
    raised: bool
    why: str
    features: Mapping[str, float]
    nodes: frozenset[str]
    caught: bool = False
    ends_near: bool = False
    higher: bool = False
    passed: bool = False
    begun: float | None = None
    sudden: bool = False


class EventMeasurer:
    """Measures the events of one run."""

    def __init__(
        self,
        run: RunProfile,
        compared: Mapping[str, EventComparison],
        ending: RunEnding,
        off: Mapping[str, float],
        *,
        known: Mapping[tuple[str, int], float],
        displaced: Collection[str] = (),
    ) -> None:
        self._run, self._compared, self._ending, self._known = run, compared, ending, known
        self._displaced = frozenset(displaced)
        self._behind = LineTimes(run, off)
        self._nodes = max(1, len(run.heard - {JOB}))
        self._steps = {(beat.spot.source, beat.spot.offset) for beat in run.beats}
        self._survival = Survival(run, compared, ending, self._behind, self._nodes)
        self._wave = self._first_consequence()
        self._lines = {voice.source: voice.lines for voice in run.voices}
        self._voices = Counter(voice.node for voice in run.voices)
        self._writers = self._by_writer()
        self._first_raised = self._first_of_raised()
        self._exceptions = self._places(is_raised)
        self._ignored = self._places(is_ignored)
        self._below = TracebacksBelow(run)
        self._reporters = Counter(beat.spot.source for beat in run.beats)
        self._turned_in = self._last_step_in()
        self._prepared = self._last_of_start() if ending.at is None and not ending.well else None

    @property
    def wave(self) -> float | None:
        """When the first consequence came."""
        return self._wave

    @property
    def has_exception(self) -> bool:
        """Whether an exception that nobody caught was raised once the run had turned."""
        return self._first_raised is not None

    @property
    def raised(self) -> bool:
        """Whether an exception was raised, or a consequence seen, once the run had turned."""
        return self._wave is not None or self._first_raised is not None

    def all(self) -> list[MeasuredEvent]:
        """All events that may indicate a failure, by id."""
        found = []
        for event in sorted(self._run.events.values(), key=lambda item: item.id):
            spots = [spot for seen in event.nodes.values() for spot in seen.spots]
            steps = sum((spot.source, spot.offset) in self._steps for spot in spots)  # a bar may precede any line
            if is_part(event) or (steps * 2 > len(spots) and not is_behind_bars(event, spots)):
                continue  # the words of a step line name what it measures; `temporal` reads its numbers
            if not (self._below.explain(event, spots, self._continued) or self._below.introduces_loss(event, spots)):
                found.append(self._measure(event))
        return found

    def _continued(self, spot: LineRef) -> bool:
        return self._survival.went_on(spot, self._behind.time(spot))

    # What all events are seen against

    def _first_consequence(self) -> float | None:
        """When the first consequence came after the turn, of those that the good run has less often."""
        ending = self._ending
        times = [
            t
            for event in self._run.events.values()
            if is_consequence(event.text) and ((one := self._compared.get(event.id)) is None or one.fresh >= 0.5)
            for seen in event.nodes.values()
            for spot in seen.spots
            if (t := self._behind.time(spot)) is not None and (ending.at is None or t >= ending.at - 1)
        ]
        return min(times, default=None)

    def _by_writer(self) -> Mapping[str, tuple[int, int]]:
        """By first word of events, how many such events of few lines there are, and on how many nodes."""
        found: dict[str, set[str]] = defaultdict(set)
        count: Counter[str] = Counter()
        for event in self._run.events.values():
            if len(event.nodes) <= max(2, self._nodes // 4) and event.count <= 4:
                writer = _writer(event)
                count[writer] += 1
                found[writer] |= set(event.nodes)
        return {writer: (count[writer], len(found[writer])) for writer in count}

    def _was_handled(self, spot: LineRef, *, raised: bool) -> bool:
        """Whether the line above a traceback, or this line above one, tells a way out, and its source goes on with usual lines."""
        told = self._below.is_handled(spot) if raised else self._below.tells_way_out(spot)
        return told and self._survival.routine.get(spot.source, -1) > spot.offset

    def _first_of_raised(self) -> float | None:
        """When the first exception was raised that nobody caught."""
        times = [
            t
            for event in self._run.events.values()
            if is_raised(event.text) and not is_consequence(event.text) and self._fresh(event) >= 0.5
            for seen in event.nodes.values()
            for spot in seen.spots
            if (t := self._behind.time(spot)) is not None
            and (self._ending.at is None or t >= self._ending.at - JUST_BEFORE)
        ]
        return min(times, default=None)

    def _places(self, wanted: Callable[[str], bool]) -> Mapping[str, list[int]]:
        """By source the places of events of a kind, in order."""
        found: dict[str, list[int]] = defaultdict(list)
        for event in self._run.events.values():
            if wanted(event.text):
                for seen in event.nodes.values():
                    for spot in seen.spots:
                        found[spot.source].append(spot.offset)
        return {source: sorted(places) for source, places in found.items()}

    def _fresh(self, event: RunEvent) -> float:
        one = self._compared.get(event.id)
        return one.fresh if one else 0.5

    # One event

    def _measure(self, event: RunEvent) -> MeasuredEvent:
        against = self._compared.get(event.id, EventComparison(event.id, 0.5, 0, ""))
        where = self._where(event)
        near, when, spot = self._best(where)
        told = max(harm(event.text, event.level), harm(spot.text, event.level) if spot.text else 0.0)
        consequence = (is_consequence(event.text) or is_consequence(spot.text)) and not of_machine(spot.text)
        raised = (is_raised(event.text) or is_raised(spot.text)) and not consequence
        if raised and _just_before(self._ignored.get(spot.source, []), spot.offset, IGNORED):
            raised, told = False, 0.0  # the interpreter itself says that it continues
        handled = all(self._was_handled(item, raised=raised) for seen in where.values() for item in seen.spots)
        caught = handled or (raised and (against.fresh < KNOWN or self._survival.most_went_on(where)))
        if caught:
            raised, told = False, CAUGHT * told
        features = {
            **_of_words(event, f"{event.text} {spot.text}"),
            **self._of_place(event, where, spot),
            **self._of_time(where, near, when, spot),
            "harm": told,
            "consequence": float(consequence),
            "raised": float(raised),
            "new": float(against.fresh >= NEW),
            "fresh": against.fresh,
            "excess": against.excess,
            "like": against.like,
            "displaced": float(event.id in self._displaced),
            "known": self._of_rules(where),
            "value": value_beyond(event, where),
        }
        return MeasuredEvent(
            event, spot, when, near, against.fresh, told, consequence, raised, against.why, features, frozenset(where),
            caught, self._ends_near(where), is_higher(event, where), self._survival.all_went_on(where),
            *self._begins(event),
        )  # fmt: skip

    def _begins(self, event: RunEvent) -> tuple[float | None, bool]:
        """When its first line was written, by place where no line has a time, and whether that is not before the run turned."""
        spots = [seen.spots[0] for seen in event.nodes.values()]
        if self._turned_in is not None:
            source, offset = self._turned_in
            places = [spot.offset for spot in spots if spot.source == source]
            return min(places, default=None), len(places) == len(spots) and min(places) > offset
        begun = min((time for spot in spots if (time := self._behind.time(spot)) is not None), default=None)
        at = self._ending.at if self._ending.at is not None else self._prepared
        return begun, at is not None and begun is not None and begun >= at - max(SHORTLY, self._ending.interval)

    def _last_of_start(self) -> float | None:
        """When the last line came that most nodes print, and a good run as well, once each: the end of what is known of a start."""
        known = [
            event
            for event in self._run.events.values()
            if len(event.nodes) * 2 > self._nodes and self._fresh(event) == 0.0 and not is_consequence(event.text)
        ]
        firsts = [[self._behind.time(seen.spots[0]) for seen in event.nodes.values()] for event in known]
        return max(
            (median(times) for several in firsts if (times := [t for t in several if t is not None])), default=None
        )

    def _last_step_in(self) -> tuple[str, int] | None:
        """The source and place of the last step, if the run has no times and only one log."""
        beats, sources = self._run.beats, {voice.source for voice in self._run.voices}
        if self._ending.at is not None or len(sources) > 1 or not beats:
            return None
        return beats[-1].spot.source, max(beat.spot.offset for beat in beats)

    def _ends_near(self, where: Mapping[str, NodeEvent]) -> bool:
        """Whether its last line there came when the run turned, or after."""
        ending = self._ending
        last = [time for seen in where.values() if (time := self._behind.time(seen.spots[-1])) is not None]
        if ending.at is None or not last:
            return ending.at is None
        return ending.at - max(last) <= max(JUST_BEFORE, STEPS_BEHIND * ending.interval)

    def _of_rules(self, where: Mapping[str, NodeEvent]) -> float:
        """The contribution of a rule that knows one of the event's lines."""
        spots = (spot for seen in where.values() for spot in seen.spots)
        return max((self._known.get((spot.source, spot.offset), 0.0) for spot in spots), default=0.0)

    def _where(self, event: RunEvent) -> Mapping[str, NodeEvent]:
        """The nodes on which it came: those that print it far more often than the others that do, if there are such."""
        counts = sorted(seen.count for seen in event.nodes.values())
        if len(counts) < 2:
            return event.nodes
        usual = counts[(len(counts) - 1) // 2]
        more = {node: seen for node, seen in event.nodes.items() if seen.count >= OFTEN * usual}
        return more if 0 < len(more) <= max(1, len(counts) // 2) else event.nodes

    def _best(self, where: Mapping[str, NodeEvent]) -> tuple[float, float | None, LineRef]:
        """The line nearest to the turn, the first of several."""
        timed = [
            (nearness(when := self._survival.time(spot), self._ending, self._wave), when, spot)
            for seen in where.values()
            for spot in seen.spots
        ]
        timed = [item for item in timed if by_signal(item[2].text)] or timed
        timed = [item for item in timed if not self._survival.went_on(item[2], item[1])] or timed
        near = max(item[0] for item in timed)
        return min(
            (item for item in timed if item[0] >= near - 1e-9),
            key=lambda item: (item[1] is None, item[1] or 0.0, item[2].source, item[2].offset),
        )

    def _of_place(self, event: RunEvent, where: Mapping[str, NodeEvent], spot: LineRef) -> dict[str, float]:
        few = len(where)
        others = sorted(seen.count for node, seen in event.nodes.items() if node not in where)
        usual = median((*others, *[0] * (self._nodes - few - len(others)))) if self._nodes > few else 0.0
        most = max(seen.count for seen in where.values())
        voices = len(where[spot.node].voices) if spot.node in where else 1
        writer = self._writers.get(_writer(event), (0, 0))
        return {
            "one node": float(few == 1 and self._nodes > 1),
            "few nodes": float(1 < few <= self._nodes / 4),
            "most nodes": float(few > 0.6 * self._nodes and self._nodes > 2),
            "small job": float(self._nodes <= 2),
            "peers": min(5.0, math.log2((most + 1) / (usual + 1))) if self._nodes > 1 else 0.0,
            "often": min(6.0, math.log2(1 + most)),
            "single": float(event.count == 1),
            "voices": min(3.0, math.log2(1 + voices)),
            "all voices": float(voices > 1 and voices == self._voices[spot.node]),
            "chatty writer": min(4.0, math.log2(1 + max(0, writer[0] - 1))),
            "writer's nodes": writer[1] / self._nodes,
            "reporter": float(self._reporters[spot.source] > 0 and few == 1),
            "chained": float(_just_before(self._exceptions.get(spot.source, []), spot.offset, CHAIN)),
            "chains": float(_just_behind(self._exceptions.get(spot.source, []), spot.offset, CHAIN)),
            "framed": float("[in " in event.text),
        }

    def _of_time(
        self, where: Mapping[str, NodeEvent], near: float, when: float | None, spot: LineRef
    ) -> dict[str, float]:
        ending = self._ending
        firsts = [t for seen in where.values() if (t := self._behind.time(seen.spots[0])) is not None]
        lasts = [t for seen in where.values() if (t := self._behind.time(seen.spots[-1])) is not None]
        length = max(1.0, (ending.over or 0.0) - (ending.begun or 0.0))
        turned = ending.at is not None and when is not None
        ahead = (ending.at or 0.0) - (when or 0.0) if turned else 0.0
        lines = self._lines.get(spot.source, 0)
        left = max(0, lines - spot.line) if spot.line is not None and lines else 0
        return {
            "near": near,
            "undated": float(when is None),
            "before": min(8.0, math.log2(1 + max(0.0, ahead) / max(1.0, ending.interval))),
            "passed": float(turned and ahead > JUST_BEFORE),
            "stepless": float(ending.at is None),
            "late": float(self._wave is not None and when is not None and ending.crashed and when > self._wave + 2.0),
            "behind raised": min(8.0, math.log2(1 + max(0.0, when - self._first_raised)))
            if when is not None and self._first_raised is not None
            else 0.0,
            "ahead of raised": min(12.0, math.log2(1 + max(0.0, self._first_raised - when)))
            if when is not None and self._first_raised is not None
            else 0.0,
            "first of wave": float(self._wave is not None and when is not None and when <= self._wave + 1.0),
            "crashed": float(ending.crashed),
            "any raised": float(self._first_raised is not None),
            "stalled": min(
                8.0, math.log2(1 + max(0.0, (ending.over or 0.0) - (ending.at or 0.0)) / max(1.0, ending.interval))
            )
            if ending.at is not None
            else 0.0,
            "scattered": float(len(firsts) > 1 and max(firsts) - min(firsts) > max(30.0, 2 * ending.interval)),
            "span": (max(lasts) - min(firsts)) / length if firsts and lasts else 0.0,
            "begun": ((min(firsts) - (ending.begun or 0.0)) / length) if firsts else 0.5,
            "went on": float(self._survival.routine.get(spot.source, -1) > spot.offset),
            "left": min(10.0, math.log2(1 + left)),
        }


def _of_words(event: RunEvent, text: str) -> dict[str, float]:
    return {
        "grave": float(is_grave(text)),
        "uneasy": float(is_uneasy(text)),
        "mild": float(is_mild(text)),
        "aside": float(is_aside(text)),
        "signal": float(by_signal(text)),
        "machine": float(of_machine(text)),
        "debug": float(event.level == "debug"),
        "info": float(event.level == "info"),
        "warning": float(event.level == "warning"),
        "error": float(event.level in ("error", "critical")),
    }


def _just_before(places: Sequence[int], offset: int, room: int) -> bool:
    at = bisect_left(places, offset)
    return at > 0 and offset - places[at - 1] <= room


def _just_behind(places: Sequence[int], offset: int, room: int) -> bool:
    at = bisect_right(places, offset)
    return at < len(places) and places[at] - offset <= room


def _writer(event: RunEvent) -> str:
    return next(iter(skeleton(event.text)), "")
