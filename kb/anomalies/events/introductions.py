"""Adds to the exceptions that are told what their ranks reported, in words of their own, just before they raised them.

A program often logs what it found, and then raises an exception whose words are shorter, or are those of a library.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kb.anomalies.core.clock_skew import corrected
from kb.anomalies.core.run import LineRef, RunEvent, RunProfile
from kb.anomalies.core.severity_words import harm, is_body, is_consequence, is_raised
from kb.anomalies.events.ranking import TOLD, UNFILTERED, RankedEvent
from kb.anomalies.nodes.members import of_launchers
from kb.anomalies.runs.baseline_diff import NEW

MOST = 2  # that are added
OFTEN, WARNED_OFTEN = 2, 4  # errors, and warnings, of each rank, at most
SOON = 2.0  # seconds before the exception
BESIDE = 8192  # bytes before it, where lines have no time of their own
LAST = 1024  # bytes of a log that are its end
MOST_RANKS = 0.5  # share of the ranks that raise the exception
GRAVE = frozenset({"error", "critical"})
WARNED = frozenset({"error", "critical", "warning"})


def with_introductions(
    told: Sequence[RankedEvent],
    run: RunProfile,
    fresh: Mapping[str, float],
    off: Mapping[str, float],
    *,
    filtered: bool,
) -> list[RankedEvent]:
    """The events that are told, with new ones that report an error on the ranks of a told exception just before it.

    Of an exception that several ranks raise, warnings count, too: they have the reason in common. `filtered`: a good run is known.
    """
    new = NEW if filtered else UNFILTERED
    raised = [item for item in told if not item.consequence and (item.raised or item.event.level in GRAVE)]
    known = {item.event.id for item in told}
    launched = of_launchers(run, fresh, new) if raised else frozenset()
    ends = {voice.source: voice.last.offset for voice in run.voices if voice.last is not None}
    found: list[RankedEvent] = []
    for event in sorted(run.events.values(), key=lambda one: one.id):
        if event.id in known or event.id in launched or fresh.get(event.id, 0.0) < new or event.level not in WARNED:
            continue
        if is_raised(event.text) or is_consequence(event.text) or is_body(event.text):
            continue
        for item in raised:
            if _introduces(event, item.event, off, ends):
                spot = min((seen.spots[-1] for seen in event.nodes.values()), key=lambda one: one.order)
                why = ("printed just before the exception",)
                nodes = frozenset(event.nodes)
                grave = harm(event.text, event.level)
                found.append(
                    RankedEvent(event, TOLD, spot, fresh[event.id], grave, 1.0, consequence=False, why=why, nodes=nodes)
                )
                break
    found.sort(key=lambda item: (item.event.level not in GRAVE, item.spot.order))
    return [*told, *found[:MOST]]


def _introduces(event: RunEvent, raised: RunEvent, off: Mapping[str, float], ends: Mapping[str, int]) -> bool:
    """Whether nearly only ranks that raise an exception print an event, shortly before."""
    both = event.nodes.keys() & raised.nodes.keys()
    if len(both) != len(event.nodes) or len(both) < MOST_RANKS * len(raised.nodes):
        return False
    if event.level not in GRAVE and len(both) == 1:
        return False
    if any(event.nodes[node].count > (OFTEN if event.level in GRAVE else WARNED_OFTEN) for node in both):
        return False
    near = sum(_is_just_before(event.nodes[node].spots[-1], raised.nodes[node].spots[0], off, ends) for node in both)
    return near >= MOST_RANKS * len(both)


def _is_just_before(spot: LineRef, raised: LineRef, off: Mapping[str, float], ends: Mapping[str, int]) -> bool:
    if spot.source == raised.source:
        return spot.offset < raised.offset and (
            raised.offset - spot.offset <= BESIDE or _seconds(spot, raised, off) <= SOON
        )
    if not raised.dated:  # in another log of the rank: then what that rank printed last there is near
        return ends.get(spot.source, spot.offset) - spot.offset <= LAST
    return spot.dated and -SOON <= _seconds(spot, raised, off) <= SOON


def _seconds(spot: LineRef, later: LineRef, off: Mapping[str, float]) -> float:
    first, second = corrected(spot, off), corrected(later, off)
    return second - first if first is not None and second is not None else SOON + 1.0
