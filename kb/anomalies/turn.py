"""The step and the stage in which a run turned, by all that stands out in it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kb.anomalies.core.clock_skew import corrected
from kb.anomalies.core.numbers import is_duration
from kb.anomalies.core.run import RANK
from kb.anomalies.core.severity_words import stage_named
from kb.anomalies.events.ranking import RankedEvent
from kb.anomalies.nodes.peers import OddNode
from kb.anomalies.run_view import ENDED_ITSELF, STALLED, RunView
from kb.anomalies.runs.baseline_diff import NEW
from kb.anomalies.time.change_step import step_at, step_named, step_of
from kb.anomalies.time.interludes import interlude_at, interludes
from kb.anomalies.time.stack_stage import stage_in_stacks
from kb.anomalies.time.stage import stage_at
from kb.anomalies.time.startup import startup_stage

LOADS = ("checkpoint_load", "data_load")  # what an exception before the first step may say that it was doing


def step_of_turn(
    seen: RunView, events: Sequence[RankedEvent], drifted: Sequence[OddNode], dissent: Sequence[OddNode]
) -> int | None:
    """The step at which it turned: where steps changed, else that of the first event, or the last one of a run that crashed.

    A number that moved ends a run some steps later, which then fails there; a slow rank, or a run that did not end itself, turned where it moved.
    """
    if seen.turned:
        return seen.turned[0].step
    spot = events[0].spot if events else None
    step = step_at(seen.course, corrected(spot, seen.off) if spot else None)
    if seen.course.last is not None and seen.ending.crashed:
        step = step_named(events[0].spot.text if events else "", seen.course) or max(
            step or 0, seen.course.last.step, *(line.step for line in seen.run.counted)
        )
    slow = [odd for odd in drifted if odd.spot and odd.place is not None and is_duration(odd.spot.text, odd.place)]
    broke = seen.run.state.upper() in ENDED_ITSELF and seen.course.last is not None and not slow
    if drifted and not broke and (seen.run.state.upper() == STALLED or _is_own_end(drifted, dissent, events)):
        first = min(drifted, key=lambda item: math.inf if item.begun is None else item.begun)
        own = None if first.spot is None else step_of(seen.run, first.spot)
        return own if own is not None or first.begun is None else step_at(seen.course, first.begun)
    return step


def _is_own_end(drifted: Sequence[OddNode], dissent: Sequence[OddNode], events: Sequence[RankedEvent]) -> bool:
    """Whether the run ended for the number that moved: its rank is the first of those that stand out, or it differs from all others."""
    return bool(dissent) or not events or any(f"{RANK}{events[0].spot.rank}" == item.node for item in drifted)


def stage_of_turn(
    seen: RunView, events: Sequence[RankedEvent], nodes: Sequence[OddNode], known: Mapping[tuple[str, ...], str]
) -> str:
    """The stage in which it turned; a run that changed at some step was iterating."""
    if seen.turned:
        return "iterating"
    spot = events[0].spot if events else None
    when = corrected(spot, seen.off) if spot else seen.ending.over
    last = seen.course.stopped
    if when is not None and last is not None and when < last:
        when = seen.ending.over
    text = f"{events[0].event.text} {spot.text}" if spot and events[0].raised else ""
    waited = stage_in_stacks(seen.run, seen.course, spot, seen.off)
    stage = waited or stage_at(seen.run, seen.course, when, seen.off, spot=spot, text=text)
    if stage == "iterating" and seen.course.beats:
        steps = seen.run.counted or seen.run.beats
        stage = interlude_at(seen.run, steps, {**interludes(seen.run, steps), **known}, spot) or stage
    if seen.course.beats or stage == "iterating":
        return stage
    own = [event for event in events if not event.consequence] or events
    suspect = nodes[0].node if nodes else None
    own = sorted(own, key=lambda event: event.spot.node != suspect)
    reports = [(f"{event.event.text} {event.spot.text}", event.spot) for event in own]
    usual = {name for name, fresh in seen.fresh.items() if fresh < NEW}
    raised = bool(own) and own[0].raised and not own[0].consequence
    told = (stage_named(text, LOADS) if stage == "launch" else None) or stage
    return startup_stage(seen.run, reports, told, raised=raised, usual=usual)
