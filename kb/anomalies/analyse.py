"""Combines the three comparisons: which lines, nodes, stage and step indicate the failure.

Without a good run the first comparison is skipped and the later ones work on every event; the answer says so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from kb.anomalies.core.clock_skew import align_clocks, corrected, skews
from kb.anomalies.core.dissent import dissenting
from kb.anomalies.core.run import RANK, LineRef, RunProfile, StepLine
from kb.anomalies.core.severity_words import by_signal, is_body, is_raised
from kb.anomalies.events.aftermath import without_aftermath
from kb.anomalies.events.features import EventMeasurer
from kb.anomalies.events.introductions import with_introductions
from kb.anomalies.events.lead_up import before_odd, with_lead_up
from kb.anomalies.events.model import EventModel
from kb.anomalies.events.peer_reports import without_peer_reports
from kb.anomalies.events.ranking import TOLD, RankedEvent, choose_events, ending_of, rank_events
from kb.anomalies.events.reported_ends import with_report
from kb.anomalies.events.unit_names import named_events, named_nodes
from kb.anomalies.nodes.absences import absences, stopped_lines
from kb.anomalies.nodes.drifts import drifting
from kb.anomalies.nodes.members import reports_end
from kb.anomalies.nodes.onsets import ReadBytes, with_onset
from kb.anomalies.nodes.peers import OddNode, SharedPlace, shared_places, usual_end
from kb.anomalies.nodes.speakers import speaker
from kb.anomalies.nodes.suspects import suspects
from kb.anomalies.nodes.turning_point import TurningPoint
from kb.anomalies.run_view import ENDED_ITSELF, STALLED, RunView
from kb.anomalies.runs.baseline_diff import (
    NEW,
    Baseline,
    DifferingSetting,
    EventComparison,
    changed,
    compare,
    differing_settings,
    doubts,
    is_foreign,
    out_of_order,
)
from kb.anomalies.runs.new_lines import new_lines
from kb.anomalies.time.change_step import (
    StepChange,
    changes,
    course_of,
    is_stalled,
)
from kb.anomalies.time.repeating import RepeatingSteps, finer_steps, repeating_steps
from kb.anomalies.turn import stage_of_turn, step_of_turn
from kb.report import Indicator

MOST_LINES = 5  # that stand out, of all kinds together
DISSENT = 0.8  # score of a rank whose value differs from all others'
LITTLE = 20.0  # seconds that slower steps of a run that ended well may cost
MUCH = 2.5  # times as long a step takes that is told all the same
RUNNING = "RUNNING"
STOPPED = ("CANCELLED", "TIMEOUT")  # by somebody, or by its time limit


@dataclass(frozen=True, slots=True)
class RunFindings:
    """What stands out in a run. `events`, `nodes`: the likeliest first; `said`: what the reader must know about the comparison.

    `peers`: how many ranks or nodes were compared with one another; `new`: the last lines that the good run has nothing like.
    """

    events: tuple[RankedEvent, ...] = ()
    turn: StepChange | None = None
    absent: tuple[OddNode, ...] = ()
    drifted: tuple[OddNode, ...] = ()
    nodes: tuple[OddNode, ...] = ()
    places: tuple[SharedPlace, ...] = ()
    stage: str | None = None
    step: int | None = None
    changed: tuple[tuple[str, str, str], ...] = ()
    unlike: tuple[DifferingSetting, ...] = ()
    said: tuple[str, ...] = ()
    compared_with: str = ""
    peers: int = 0
    new: tuple[Indicator, ...] = ()


def measure_run(
    run: RunProfile,
    good: Baseline | None = None,
    known: Mapping[tuple[str, int], float] | None = None,
    pool: Baseline | None = None,
) -> RunView:
    """Measure a run. `known`: what rules add about a line, by source and offset; `pool`: what healthy runs of any job print."""
    run = align_clocks(run, run.start)
    if _never_rises(run.beats):
        run = replace(run, beats=(), losses=run.losses or tuple(run.beats))
    steps = good.steps if good else None
    if not run.beats:
        repeated = RepeatingSteps(run.anchors) if run.anchors else repeating_steps(run, steps)
        run = replace(run, beats=repeated.beats, pace=repeated.pace, counted=repeated.counted)
    else:
        run = replace(run, counted=finer_steps(run, steps))
    off = skews(run)
    course = course_of(run, off)
    compared = compare(run, good) if good else _by_rarity(run, pool)
    displaced = out_of_order(run, good) if good else ()
    turned = changes(course)
    ending = ending_of(run, course, turned, off)
    if ending.well and turned and turned[0].why == "slower" and turned[0].lost < LITTLE and turned[0].size < MUCH:
        turned = ()  # it came to its end all the same
        ending = ending_of(run, course, turned, off)
    if ending.well and not turned and is_stalled(course, usual_end(run, off)):
        run = replace(run, state=STALLED)  # whatever the scheduler says
        ending = ending_of(run, course, turned, off)
    measure = EventMeasurer(run, compared, ending, off, known=known or {}, displaced=displaced)
    lost = bool(turned) and turned[0].why == "loss" and not measure.has_exception
    if turned and run.state.upper() in ENDED_ITSELF and measure.raised and not lost:
        turned = ()  # it went on until something ended it: its earlier slowness did not
        ending = ending_of(run, course, turned, off)
        measure = EventMeasurer(run, compared, ending, off, known=known or {}, displaced=displaced)
    fresh = {name: item.fresh for name, item in compared.items()}
    measured = measure.all() if ending.well and not turned else without_peer_reports(measure.all(), run)
    return RunView(run, off, course, turned, ending, tuple(measured), fresh)


def _never_rises(beats: Sequence[StepLine]) -> bool:
    """Whether each rank repeats the same number in all of its step lines: its own, as that of its place in the world."""
    steps: dict[str, list[int]] = defaultdict(list)
    for beat in beats:
        steps[f"{beat.spot.source} {beat.spot.rank}"].append(beat.step)
    return bool(steps) and all(len(set(own)) == 1 for own in steps.values()) and max(map(len, steps.values())) > 2


def find_anomalies(
    run: RunProfile,
    good: Baseline | None = None,
    *,
    model: EventModel,
    known: Mapping[tuple[str, int], float] | None = None,
    topology: Mapping[str, Mapping[str, str]] | None = None,
    pool: Baseline | None = None,
    read: ReadBytes | None = None,
) -> RunFindings:
    """Return what stands out in a run. `good`: a good run of the same job; `pool`: good runs of any job; `model`: weighs events.

    `read`: reads the logs once more, between two lines that are kept.
    """
    said: list[str] = []
    if good is not None and good.empty:
        said.append("the good run to compare with is empty")
        good = None
    if good is not None and is_foreign(run, good):
        said.append("the good run seems to belong to another job, so it was not used")
        good = None
    if good is not None:
        said += doubts(run, good)
    seen = measure_run(run, good, known, pool)
    if good is None:
        said.append(_unfiltered(seen, pool))
    run, off, turned, ending = seen.run, seen.off, seen.turned, seen.ending
    new = new_lines(run.events.values(), seen.fresh) if good else ()
    moved = (
        drifting(run, good.moving)
        if ending.well and not turned and run.state.upper() == RUNNING and good is not None
        else ()
    )
    if ending.well and not turned and not moved:
        apart = changed(run, good) if good else ()
        return RunFindings(said=tuple(said), changed=apart, compared_with=_peers(run, good, pool), new=new)
    weighed = rank_events(seen.measured, run, model, filtered=good is not None)
    events: tuple[RankedEvent, ...] = ()
    if not moved:  # else it runs on: nothing has failed
        chosen = with_lead_up(choose_events(weighed), weighed, len(run.ranks))
        events = tuple(with_introductions(chosen, run, seen.fresh, off, filtered=good is not None))
    still, drifted, dissent = _odd_ranks(seen, good, events, read)
    if still or drifted:  # what is missing there is the cause: the others report what came of it
        events = tuple(event for event in events if not event.consequence or by_signal(event.spot.text))
        events = tuple(event for event in events if event.score >= TOLD or event.fresh >= NEW)
    events = without_aftermath(events, (*still, *drifted), off, run.ranks)
    events, accused = with_report(run, events, still or drifted) if ending.crashed else (events, ())
    if run.state.upper() in STOPPED and all(event.launched for event in events):
        events = ()  # that it was stopped is known, and says nothing of why it hung
    if good is not None:
        told = {event.event.id for event in events}
        events += tuple(item for item in before_odd(drifted, weighed, len(run.ranks)) if item.event.id not in told)
    events = events[: MOST_LINES - len(turned[:1]) - len(still) - len(drifted)]
    nodes = _nodes(seen, events)
    nodes = _first(nodes, (*dissent, *still) if events and not accused else (*accused, *still, *drifted))
    nodes = _together(run, events, nodes) if not dissent else nodes
    return RunFindings(
        named_events(events, run.names),
        turned[0] if turned else None,
        named_nodes(still, run.names),
        named_nodes(drifted, run.names),
        named_nodes(nodes, run.names),
        shared_places([node.node for node in nodes], topology or {}),
        stage_of_turn(seen, events, nodes, good.interludes if good else {}),
        step_of_turn(seen, events, drifted, dissent),
        changed(run, good) if good else (),
        differing_settings(run),
        tuple(said),
        _peers(run, good, pool),
        len(_parts(run)),
        new,
    )


def _odd_ranks(
    seen: RunView, good: Baseline | None, events: Sequence[RankedEvent], read: ReadBytes | None
) -> tuple[tuple[OddNode, ...], tuple[OddNode, ...], tuple[OddNode, ...]]:
    """Nodes that lack something, ranks with a number that moved or a value that differs, and the last of these alone."""
    moved = tuple(
        with_onset(odd, seen.run, read)
        for odd in drifting(seen.run, good.moving if good else ())
        if odd.spot is None or not reports_end(odd.spot.text)
    )
    still, drifted = _as_one(_still(seen, events), moved)
    found = dissenting(seen.run, good.apart if good else None)
    if found is None:
        return still, drifted, ()
    odd = OddNode(found.node, DISSENT, found.why, (), found.spot, found.spot.time)
    same = next((item for item in drifted if item.node == odd.node and item.spot is not None), None)
    if same is not None and same.spot is not None and same.spot.order < found.spot.order:
        odd = same  # it was on its way before it differed in a line that is kept
    return still, (odd, *(item for item in drifted if item.node != odd.node)), (odd,)


def _unfiltered(seen: RunView, pool: Baseline | None) -> str:
    """How far the comparison goes without a good run: which lines could not be filtered, and what speaks for those that are shown."""
    kinds, usual = len(seen.fresh), sum(fresh == 0.0 for fresh in seen.fresh.values())
    told = ["there was no good run of this job to compare with"]
    if pool is not None and usual:
        told.append(
            f"{pool.label.capitalize()} print {usual:,} of its {kinds:,} kinds of lines, too; these were left out"
        )
    left = kinds - usual
    told.append(
        f"{left:,} {'kind' if left == 1 else 'kinds'} of lines could not be filtered and may be usual for this job"
    )
    if len(_parts(seen.run)) > 1:
        told.append("The surest are those that only some ranks or nodes printed")
    else:
        told.append("Only their words and their place in the log speak for those that are shown")
    return ". ".join(told)


def _parts(run: RunProfile) -> list[str]:
    """The ranks or nodes that can be compared with one another."""
    kinds = run.kinds
    return [unit for unit in run.heard if kinds.get(unit) not in ("log", None)]


def _peers(run: RunProfile, good: Baseline | None, pool: Baseline | None) -> str:
    """What the run was compared with: a good run of the job, or what healthy runs of other jobs print; and its own parts."""
    parts = _parts(run)
    own = f"{len(parts)} of its ranks or nodes with one another" if len(parts) > 1 else ""
    if good is not None:
        runs = f"the good run {good.label}".rstrip() + f" ({good.lines:,} lines)"
    else:
        runs = f"what {pool.label} print" if pool is not None else ""
    return ", and ".join(part for part in (runs, own) if part)


def _still(seen: RunView, events: Sequence[RankedEvent]) -> tuple[OddNode, ...]:
    """What is missing on single nodes where no exception says why."""
    if any(
        (event.raised or is_raised(event.spot.text)) and not event.consequence and event.score >= TOLD
        for event in events
    ):
        return _pulse_lost(seen.run, seen.off, seen.ending.interval, seen.ending.at, events)
    found = absences(seen.run, seen.off, seen.ending.interval, seen.ending.at)
    told = {(event.spot.source, event.spot.offset) for event in events}
    return tuple(odd for odd in found if odd.spot is None or _tells(odd.spot, told))


def _pulse_lost(
    run: RunProfile, off: Mapping[str, float], interval: float, at: float | None, events: Sequence[RankedEvent]
) -> tuple[OddNode, ...]:
    """The rank whose regular line stopped while those of all others went on, if others raise what is told: they missed it."""
    raised = {node for event in events if event.raised for node in event.event.nodes}
    lost = [
        odd for odd in stopped_lines(run, off, interval, at) if odd.node.startswith(RANK) and odd.node not in raised
    ]
    return tuple(lost) if len(lost) == 1 else ()


def _tells(spot: LineRef, told: Collection[tuple[str, int]]) -> bool:
    """Whether the last line of a node says more than what is told already, or than a launcher says of any end."""
    part = bool(spot.text) and is_body(spot.text)
    return (spot.source, spot.offset) not in told and not part and not reports_end(spot.text)


def _as_one(still: Sequence[OddNode], drifted: Sequence[OddNode]) -> tuple[tuple[OddNode, ...], tuple[OddNode, ...]]:
    """Both without the drift of a line that is also a last one, which then has both reasons."""
    whys = {(odd.node, odd.spot): odd.why for odd in drifted}
    joined = tuple(
        replace(odd, why=f"{odd.why}; {whys[odd.node, odd.spot]}") if (odd.node, odd.spot) in whys else odd
        for odd in still
    )
    alone = {(odd.node, odd.spot) for odd in still}
    moved = {odd.node for odd in drifted if (odd.node, odd.spot) not in alone}  # says more than that it ends
    return tuple(odd for odd in joined if odd.node not in moved), tuple(odd for odd in drifted if odd.node in moved)


def _by_rarity(run: RunProfile, pool: Baseline | None = None) -> Mapping[str, EventComparison]:
    """Without a good run: what the run prints all the time counts as usual, and so does what healthy runs of other jobs print."""
    nodes = max(1, len(run.heard))
    usual = {item.event for item in compare(run, pool).values() if item.known} if pool else set()
    found = {}
    for event in run.events.values():
        often = event.count / nodes
        fresh = 0.3 if often > 20 and len(event.nodes) * 2 > nodes else 0.7
        found[event.id] = EventComparison(event.id, 0.0 if event.id in usual else fresh, 0, "")
    return found


def _nodes(seen: RunView, events: Sequence[RankedEvent]) -> tuple[OddNode, ...]:
    """The suspected nodes; for a run without steps, seen from where the first of its events occurs."""
    at = seen.ending.at
    if at is None and events:
        at = corrected(events[0].spot, seen.off)
    told = [(event.event.id, event.score) for event in events if not event.consequence or by_signal(event.spot.text)]
    found = suspects(seen.run, seen.fresh, told, TurningPoint(at, seen.ending.interval, seen.ending.crashed), seen.off)
    files = bool(found) and all(seen.run.kinds.get(node.node) == "log" for node in found)
    if not told or ((found or len(seen.run.kinds) > 1) and not files):
        return found
    own = [event for event in events if not event.consequence]
    return _speakers(seen, own or [event for event in events if by_signal(event.spot.text)]) or found


def _first(nodes: Sequence[OddNode], odd: Sequence[OddNode]) -> tuple[OddNode, ...]:
    """The suspected nodes, those first that are odd on their own: nothing else is told."""
    names = [node.node for node in odd]
    first = {item.node: item for item in reversed(odd)}
    ahead = [next((node for node in nodes if node.node == name), first[name]) for name in dict.fromkeys(names)]
    return (*ahead, *(node for node in nodes if node.node not in names))


def _together(run: RunProfile, events: Sequence[RankedEvent], nodes: Sequence[OddNode]) -> tuple[OddNode, ...]:
    """The suspected nodes, those first that printed what stands out, if they are some of the ranks, half of them at most."""
    first = events[0].event if events and events[0].fresh >= NEW and not events[0].consequence else None
    if first is None or not 1 < len(first.nodes) <= len(run.ranks) / 2 or not first.nodes.keys() <= run.ranks:
        return tuple(nodes)
    why = f"{len(first.nodes)} ranks printed the line that stands out"
    odd = [OddNode(node, events[0].score, why, (first.id,), seen.spots[0]) for node, seen in first.nodes.items()]
    order = [node.node for node in nodes]
    return _first(nodes, sorted(odd, key=lambda item: order.index(item.node) if item.node in order else len(order)))


def _speakers(seen: RunView, events: Sequence[RankedEvent]) -> tuple[OddNode, ...]:
    """In one log whose ranks cannot be compared, the one rank that printed the first event, and the other exceptions."""
    raised = [event for event in events[1:] if event.raised]
    found = {speaker(seen.run, event.event) for event in (events[0], *raised)}
    who = found.pop() if len(found) == 1 else None
    why = "it printed the line that stands out"
    return (OddNode(who, events[0].score, why, (events[0].event.id,)),) if who else ()
