"""The three comparisons joined: which lines, nodes, stage and step tell a failure, for the report and for whoever asks.

Without a good run the first comparison is left out, and all later ones work on every event; the answer says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kb.l4.clocks import corrected, leveled, skews
from kb.l4.cross import Baseline, Compared, changed, compare, is_foreign
from kb.l4.ranking import Ending, Weighed, choose, ending_of, weigh
from kb.l4.run import JOB, Run, Spot
from kb.l4.spatial import Odd, apart, ended_early, groups, lacking, off_values, silent
from kb.l4.temporal import Change, changes, course_of, stage_at, step_at
from kb.l4.words import is_raised
from kb.report import EvidenceItem, Indicator, Indicators

MOST_NODES = 8
FAINT_EVENTS = 12  # too weak to be told, which may still speak against a node
FAINT = 0.1  # less than that names nobody
CERTAIN, UNSURE = 0.8, 0.6  # of a first event
NAMED = 0.25  # least worth of a node that is named
WIDE = 0.6  # share of the nodes with which an event is the job's and not theirs
SHOWN = 200  # characters of a line
MOST_CHANGED = 8
NEAR_END = 0.95
HUNG = 120.0  # seconds without a step, at least


@dataclass(frozen=True, slots=True)
class Found:
    """What stands out in a run. `events` the likeliest first; `nodes` likewise; `said`: what the reader must know of the comparison."""

    events: tuple[Weighed, ...] = ()
    turn: Change | None = None
    absent: tuple[Odd, ...] = ()
    nodes: tuple[Odd, ...] = ()
    places: tuple[str, ...] = ()
    stage: str | None = None
    step: int | None = None
    changed: tuple[tuple[str, str, str], ...] = ()
    said: tuple[str, ...] = ()


def look(
    run: Run,
    good: Baseline | None = None,
    *,
    known: Mapping[tuple[str, int], float] | None = None,
    topology: Mapping[str, Mapping[str, str]] | None = None,
) -> Found:
    """All that stands out in a run. `good`: a good run of the same job, or a pool of such."""
    said: list[str] = []
    if good is not None and good.empty:
        said.append("the good run to compare with is empty")
        good = None
    if good is not None and is_foreign(run, good):
        said.append("the good run seems to be of another job; it is not used")
        good = None
    if good is None:
        said.append("no good run was compared with; lines are not filtered")
    run = leveled(run, run.start)
    off = skews(run)
    course = course_of(run, off)
    compared = compare(run, good) if good else _by_rarity(run)
    turned = changes(course)
    ending = ending_of(run, course, turned, off)
    weighed = weigh(run, compared, ending, off, known)
    if turned and any(is_raised(one.spot.text) and one.score > 0.9 for one in weighed[:3]):
        turned = ()
        ending = ending_of(run, course, turned, off)
        weighed = weigh(run, compared, ending, off, known)
    if ending.well and not turned:
        return Found(said=tuple(said), changed=changed(run, good) if good else ())
    suspects = _suspects(weighed)
    events = choose(_raised_by_place(weighed, suspects))
    still = _still(run, events, turned, ending)
    nodes = _nodes(run, events, weighed, ending, off)
    spot = events[0].spot if events else (turned[0].beats[0].spot if turned else None)
    if turned:
        spot = turned[0].beats[0].spot
    when = corrected(spot, off) if spot else None
    step = turned[0].step if turned else step_at(course, when)
    if not turned and course.last is not None and ending.crashed:
        step = max(step or 0, course.last.step)
    return Found(
        events,
        turned[0] if turned else None,
        still,
        nodes,
        groups([one.node for one in nodes], topology or {}),
        stage_at(run, spot, course, off, f"{events[0].event.text} {spot.text}" if spot and events else ""),
        step,
        changed(run, good) if good else (),
        tuple(said),
    )


def _still(run: Run, events: Sequence[Weighed], turned: Sequence[Change], ending: Ending) -> tuple[Odd, ...]:
    """Who fell silent first in a run that hung: long nothing after the last step, and nothing raised before the end."""
    if turned or ending.at is None or ending.over is None or any(is_raised(one.spot.text) for one in events[:1]):
        return ()
    if ending.over - ending.at < max(HUNG, 6 * ending.interval):
        return ()
    return tuple(one for one in lacking(run) if one.spot is not None)[:1]


def _by_rarity(run: Run) -> Mapping[str, Compared]:
    """Without a good run: what the run prints all the time is usual, the rest is not known."""
    nodes = max(1, len(run.heard))
    found = {}
    for event in run.events.values():
        often = event.count / nodes
        fresh = 0.3 if often > 20 and len(event.nodes) * 2 > nodes else 0.7
        found[event.id] = Compared(event.id, fresh, 0, "")
    return found


def _suspects(weighed: Sequence[Weighed]) -> frozenset[str]:
    """The nodes of the first event, where it is of few."""
    if not weighed or weighed[0].score < 0.45:
        return frozenset()
    nodes = frozenset(weighed[0].event.nodes)
    return nodes if len(nodes) <= 2 else frozenset()


def _raised_by_place(weighed: Sequence[Weighed], suspects: frozenset[str]) -> tuple[Weighed, ...]:
    """Events of the first one's nodes alone count for more: what a machine said before it failed."""
    if not suspects:
        return tuple(weighed)
    first = weighed[0]
    lifted = [
        replace(one, score=min(1.0, one.score + 0.25))
        if one is not first and not one.consequence and one.harm >= 0.15 and frozenset(one.event.nodes) <= suspects
        else one
        for one in weighed
    ]
    return tuple(sorted(lifted, key=lambda one: (-one.score, one.event.id)))


class _Blame:
    """What speaks against each node, added up; the strongest word of it is kept."""

    def __init__(self) -> None:
        self._score: dict[str, float] = {}
        self._why: dict[str, Odd] = {}

    def add(self, odd: Odd, part: float) -> None:
        """Let a part of a word against a node count."""
        worth = part * odd.score
        if odd.node == JOB:
            return
        self._score[odd.node] = self._score.get(odd.node, 0.0) + worth
        if odd.node not in self._why or worth > self._why[odd.node].score:
            self._why[odd.node] = replace(odd, score=worth)

    def ranked(self) -> tuple[Odd, ...]:
        """The nodes against which enough speaks, most first."""
        order = sorted(self._score, key=lambda node: (-self._score[node], node))
        top = self._score[order[0]] if order else 0.0
        if top < FAINT:
            return ()
        bar = min(NAMED, 0.5 * top)
        return tuple(
            replace(self._why[node], score=min(1.0, self._score[node]))
            for node in order[:MOST_NODES]
            if self._score[node] >= bar
        )


def _nodes(
    run: Run,
    events: Sequence[Weighed],
    weighed: Sequence[Weighed],
    ending: Ending,
    off: Mapping[str, float],
) -> tuple[Odd, ...]:
    """Nodes by what speaks against them, together."""
    heard = max(1, len(run.heard - {JOB}))
    if len(run.nodes or run.heard) < 2:  # there are no peers
        return ()
    if events and heard > 1 and len(events[0].event.nodes) > WIDE * heard and events[0].score > CERTAIN:
        return ()  # the job's own fault
    blame = _Blame()
    for odd, part in (*_by_events(events, WIDE * heard), *_by_shape(run, events, weighed, ending, off)):
        blame.add(odd, part)
    if not events or len(events[0].event.nodes) <= WIDE * heard:
        rest = [one for one in weighed[:FAINT_EVENTS] if not one.consequence and one not in events]
        for odd, part in _by_events(rest, heard / 4):
            blame.add(replace(odd, why="it says what few others do"), 0.3 * part)
    return blame.ranked()


def _by_events(events: Sequence[Weighed], wide: float) -> Iterator[tuple[Odd, float]]:
    """Nodes that say what is told, where few do; each with how much that counts."""
    for one in events:
        few = len(one.event.nodes)
        if few == 1 or few <= wide:
            why = "it alone says what stands out" if few == 1 else "few nodes say what stands out"
            for node in one.event.nodes:
                yield Odd(node, one.score, why, (one.event.id,)), few**-0.25


def _by_shape(
    run: Run, events: Sequence[Weighed], weighed: Sequence[Weighed], ending: Ending, off: Mapping[str, float]
) -> Iterator[tuple[Odd, float]]:
    """Nodes whose log as a whole is unlike the others'; each with how much that counts."""
    yield from ((odd, 0.75) for odd in silent(run))
    yield from ((odd, 0.6) for odd in ended_early(run, off, ending.interval))
    yield from ((odd, 0.5) for odd in lacking(run))
    if not ending.crashed or not events or events[0].score < UNSURE:
        yield from ((odd, 0.35) for odd in off_values(run, ending.at, off)[:3])
    weight = {one.event.id: one.score for one in weighed[:100] if not one.consequence}
    yield from ((odd, 0.12 / (1 + place)) for place, odd in enumerate(apart(run, weight)[:5]))


# --- as the report shows it ------------------------------------------------------------------------------------------


def indicators(
    run: Run,
    good: Baseline | None = None,
    *,
    known: Mapping[tuple[str, int], float] | None = None,
    topology: Mapping[str, Mapping[str, str]] | None = None,
) -> Indicators:
    """What stands out in a run, ranked, with its lines: the report's `indicators`. See `look` for the arguments."""
    return shown(look(run, good, known=known, topology=topology))


def shown(found: Found) -> Indicators:
    """Findings as the report's indicators: lines, then what was set otherwise; nodes; stage; step."""
    events: list[Indicator] = []
    if found.turn:
        beat = found.turn.beats[0]
        events.append(Indicator(f"step {found.turn.step}", found.turn.told, _item(len(events), beat.spot)))
    events += [
        Indicator(one.spot.text.strip()[:SHOWN], "the last line of who fell silent first", _item(len(events), one.spot))
        for one in found.absent
        if one.spot
    ]
    for one in found.events:
        why = ", ".join(
            (*one.why, "a consequence" if one.consequence else "near the end" if one.near > NEAR_END else "")
        )
        events.append(Indicator(_text(one), why.strip(", "), _item(len(events), one.spot)))
    nodes = [Indicator(one.node, one.why) for one in found.nodes]
    nodes += [Indicator(place, "most of these nodes share it, and few others do") for place in found.places]
    if not events and not nodes:
        return Indicators()
    events += [
        Indicator(f"{name}: {now or 'not set'}", f"{before or 'not set'} in the last good run")
        for name, before, now in found.changed[:MOST_CHANGED]
    ]
    stages = (Indicator(found.stage, "the stage in which it turned"),) if found.stage else ()
    steps = (Indicator(str(found.step), "the step in which it turned"),) if found.step is not None else ()
    return Indicators(tuple(events), tuple(nodes), stages, steps)


def _text(one: Weighed) -> str:
    return (one.spot.text or one.event.text).strip()[:SHOWN]


def _item(place: int, spot: Spot) -> EvidenceItem:
    return EvidenceItem(
        f"i{place + 1}",
        "line",
        spot.source,
        spot.text,
        offset=spot.offset,
        time=spot.time,
        rank=spot.rank,
        node=spot.node if spot.node not in (JOB, spot.source) else None,
    )
