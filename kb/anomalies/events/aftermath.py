"""Leaves out what other ranks print of a failure after the rank that began it.

A rank that waits, or that counts the others' answers, reports in words that are new and sound bad. It is telling only as long as nothing
earlier is known of the rank that it waits for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from kb.anomalies.core.clock_skew import corrected
from kb.anomalies.core.run import RANK
from kb.anomalies.events.ranking import RankedEvent
from kb.anomalies.nodes.peers import OddNode
from kb.anomalies.nodes.verdicts import rank_reported

SURE = 0.5  # score of an event of one rank, after which what others print is what came of it
LATER = 2.0  # seconds
MOST = 0.6  # share of the other ranks


def without_aftermath(
    events: Sequence[RankedEvent], odd: Sequence[OddNode], off: Mapping[str, float], ranks: AbstractSet[str]
) -> tuple[RankedEvent, ...]:
    """Drop the events that other ranks printed after the odd rank, or after the only rank that printed what stands out.

    Exceptions stay, because a rank raises its own. So do lines that name that rank by its number. `ranks`: all ranks that printed anything.
    """
    known = [(item.node, corrected(item.spot, off)) for item in odd if item.spot]
    known += [(next(iter(event.nodes)), corrected(event.spot, off)) for event in events if _is_of_one_rank(event)]
    begun = [(node, time) for node, time in known if time is not None]
    alone = {node for node, _ in known}
    return tuple(
        event
        for event in events
        if event.raised or not (_is_later(event, begun, off, ranks) or _is_of_the_rest(event, alone, ranks))
    )


def _is_of_the_rest(event: RankedEvent, alone: AbstractSet[str], ranks: AbstractSet[str]) -> bool:
    """Whether most other ranks than one that stood out printed it: they report what came of it."""
    nodes = event.event.nodes.keys()
    return nodes <= ranks and any(node not in nodes and len(nodes) >= MOST * (len(ranks) - 1) for node in alone & ranks)


def _is_of_one_rank(event: RankedEvent) -> bool:
    return event.score >= SURE and len(event.nodes) == 1 and next(iter(event.nodes)).startswith(RANK)


def _is_later(
    event: RankedEvent, begun: Sequence[tuple[str, float]], off: Mapping[str, float], ranks: AbstractSet[str]
) -> bool:
    """Whether ranks other than one that stood out before printed it, and do not name that one."""
    when = corrected(event.spot, off)
    if when is None or not all(node.startswith(RANK) for node in event.nodes):
        return False
    named = rank_reported(event.event, ranks)
    return any(time < when - LATER and node not in event.nodes and node != named for node, time in begun)
