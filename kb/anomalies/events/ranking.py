"""Ranks the events that indicate the failure, the likeliest first, by the estimates of `kb.anomalies.events.model`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from kb.anomalies.core.clock_skew import corrected
from kb.anomalies.core.run import LineRef, RunEvent, RunProfile
from kb.anomalies.core.severity_words import by_signal, is_asked
from kb.anomalies.events.features import MeasuredEvent
from kb.anomalies.events.model import EventModel, event_probabilities
from kb.anomalies.events.structure import corrected_scores
from kb.anomalies.nodes.members import of_launchers
from kb.anomalies.runs.baseline_diff import NEW
from kb.anomalies.time.change_step import StepChange, StepCourse
from kb.anomalies.time.run_end import RunEnding

TOLD = 0.36  # a probability from which on an event is reported: about half of the F1 reached, where the sum of both errors is smallest
ALONE = 0.2  # of the likeliest, if none is reported
SURE = 0.5  # from which on an event explains why a process was ended
UNFILTERED = 0.6  # `fresh` from which on an event may be new, where no good run is known
TROUBLE = 0.3  # harm of a line that reports trouble
MOST = 8
_NAME = re.compile(
    r"(?<![\w.-])[A-Za-z]+(?:[-.][A-Za-z]*[\w<*>]+)+(?![\w.-])"
)  # of a host, and other names that are made of parts
WELL = frozenset({"COMPLETED", "SUCCEEDED", "RUNNING", ""})


@dataclass(frozen=True, slots=True)
class RankedEvent:
    """An event with the probability that it indicates the failure, the line that shows it best, and why it is reported.

    `nodes`: those of its nodes on which it stands out. `launched`: a launcher's report that a member ended, or what followed it there.
    """

    event: RunEvent
    score: float
    spot: LineRef
    fresh: float
    harm: float
    near: float
    consequence: bool
    why: tuple[str, ...]
    nodes: frozenset[str] = frozenset()
    raised: bool = False
    launched: bool = False


def ending_of(run: RunProfile, course: StepCourse, turned: Sequence[StepChange], off: Mapping[str, float]) -> RunEnding:
    """When and how a run turned."""
    times = [
        t
        for event in run.events.values()
        for seen in event.nodes.values()
        for spot in (seen.spots[0], seen.spots[-1])
        if (t := corrected(spot, off)) is not None
    ]
    begun, over = min(times, default=None), max(times, default=None)
    at, interval = course.stopped, course.interval or 10.0
    well = run.state.upper() in WELL
    crashed = not well
    if turned:
        when = corrected(turned[0].beats[0].spot, off)
        at, crashed = (when if when is not None else at), False
    return RunEnding(at, begun, over, interval, crashed, well)


def rank_events(
    measured: Sequence[MeasuredEvent], run: RunProfile, model: EventModel, *, filtered: bool
) -> tuple[RankedEvent, ...]:
    """All events of a run by how likely they indicate the failure. `filtered`: a good run is known."""
    scores = corrected_scores(measured, event_probabilities(measured, model, filtered=filtered), run, filtered=filtered)
    kinds = {unit: kind for unit, kind in run.kinds.items() if unit in run.heard}
    launched = of_launchers(run, {item.event.id: item.fresh for item in measured}, NEW if filtered else UNFILTERED)
    found = [_weighed(item, score, kinds, launched) for item, score in zip(measured, scores, strict=True)]
    return tuple(sorted(found, key=lambda item: (-item.score, item.event.id)))


def _weighed(
    measured_event: MeasuredEvent, score: float, kinds: Mapping[str, str], launched: Collection[str]
) -> RankedEvent:
    why = [measured_event.why] if measured_event.why else []
    those = {kinds[unit] for unit in measured_event.nodes if unit in kinds}
    alike = sum(kind in those for kind in kinds.values())
    if measured_event.event.elsewhere:
        pass  # others print it, too: how many is known, not who
    elif alike > 2 and len(measured_event.event.nodes) == 1 and those:
        why.append(f"only {next(iter(measured_event.nodes))} printed this")
    elif alike > 2 and len(measured_event.nodes) <= max(1, alike // 8):
        why.append(f"on {len(measured_event.nodes)} of {alike} {' or '.join(f'{kind}s' for kind in sorted(those))}")
    return RankedEvent(
        measured_event.event,
        score,
        measured_event.spot,
        measured_event.fresh,
        measured_event.harm,
        measured_event.near,
        measured_event.consequence or measured_event.event.id in launched,
        tuple(why),
        measured_event.nodes,
        measured_event.raised,
        measured_event.event.id in launched,
    )


def choose_events(weighed: Sequence[RankedEvent]) -> tuple[RankedEvent, ...]:
    """The events worth reporting: the likely ones, or else the likeliest if it is not too unlikely.

    Beside a cause, consequences are left out, but not the launcher's word that a signal ended a process.
    """
    told = [ranked_event for ranked_event in weighed[:MOST] if ranked_event.score >= TOLD]
    told = _with_one_block(_causes(told) or _likely_cause(weighed) or _surest(told))
    told = _without_copies(_with_first_report(told, weighed))
    return tuple(told) or tuple(ranked_event for ranked_event in weighed[:1] if ranked_event.score >= ALONE)


def _causes(told: Sequence[RankedEvent]) -> list[RankedEvent]:
    """The events that are no consequence; and the launcher's word that a signal ended a process, if that process had no last word."""
    own = [item for item in told if not item.consequence]
    if any(item.raised or item.score >= SURE for item in own):
        return own
    return [item for item in told if not item.consequence or by_signal(item.spot.text)]


def _likely_cause(weighed: Sequence[RankedEvent]) -> list[RankedEvent]:
    """The likeliest event that is no consequence, where only consequences are likely: a new line that reports trouble."""
    likely = (item for item in weighed if not item.consequence and item.score >= ALONE)
    return [item for item in likely if item.fresh >= NEW and item.harm >= TROUBLE][:1]


def _surest(told: Sequence[RankedEvent]) -> list[RankedEvent]:
    """Of consequences only: that somebody ended the job, else what launchers report, else what ranks say of lost peers."""
    asked = [item for item in told if is_asked(item.spot.text)]
    return asked or [item for item in told if item.launched] or list(told)


def _with_one_block(told: Sequence[RankedEvent]) -> list[RankedEvent]:
    """The events with one line of what a launcher reports of a process that a signal ended: that which names the signal."""
    several = [item for item in told if item.consequence and by_signal(item.spot.text)]
    named = [item for item in several if "(SIG" in item.spot.text] or several
    return [item for item in told if item not in several or item is named[0]]


def _with_first_report(told: Sequence[RankedEvent], weighed: Sequence[RankedEvent]) -> list[RankedEvent]:
    """The events with the first of a launcher's reports in place of all: the others report what came of it."""
    if not any(item.launched for item in told):
        return list(told)
    first = min((item for item in weighed if item.launched), key=lambda item: item.spot.order)
    best = next(item for item in told if item.launched)
    return [
        replace(first, score=best.score) if item is best else item for item in told if item is best or not item.launched
    ]


def _without_copies(told: Sequence[RankedEvent]) -> list[RankedEvent]:
    """The events without those that differ only in a name, as a launcher's words on one process of each host; the earliest line is kept."""
    found: dict[tuple[str | None, str], RankedEvent] = {}
    for item in told:
        key = item.event.level, _NAME.sub("<*>", item.event.text)
        kept = found.get(key)
        if kept is None:
            found[key] = item
        elif item.spot.order < kept.spot.order:
            found[key] = replace(kept, event=item.event, spot=item.spot, nodes=item.nodes)
    return list(found.values())
