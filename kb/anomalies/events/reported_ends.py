"""Adds what a launcher reports of a rank that ended without a word of its own: which one, and with which status or signal."""

from __future__ import annotations

from collections.abc import Sequence

from kb.anomalies.core.run import LineRef, RunProfile
from kb.anomalies.core.severity_words import by_signal
from kb.anomalies.events.ranking import TOLD, RankedEvent
from kb.anomalies.nodes.members import accused, first_report
from kb.anomalies.nodes.peers import OddNode

WHY = "the launcher reports its end first"


def with_report(
    run: RunProfile, events: Sequence[RankedEvent], odd: Sequence[OddNode]
) -> tuple[tuple[RankedEvent, ...], tuple[OddNode, ...]]:
    """The events that are told with the launcher's report, and the rank that it names.

    `odd`: the ranks that lack something; of these the first one's report counts. Without any, the first report does, if nobody else
    says anything of its own.
    """
    own = [event for event in events if not event.consequence or by_signal(event.spot.text)]
    signal = next((event for event in own if by_signal(event.spot.text) and not event.nodes & run.ranks), None)
    if signal is not None and not any(event.raised for event in own):
        rank = accused(run, signal.spot)
        reporters = [
            event
            for event in own
            if event is signal or rank is None or rank in event.nodes or not event.nodes <= run.ranks
        ]
        return tuple(reporters), _named(rank, signal.event.id, signal.spot)
    if any(event.raised or event.nodes & {item.node for item in odd} for event in own):
        return tuple(events), ()
    told = first_report(run, odd[0].node if odd else None) if odd or not own else None
    if told is None or any(event.event.id == told[0].id for event in own):
        return tuple(events), ()
    event, spot, rank = told
    report = RankedEvent(event, TOLD, spot, 1.0, 0.0, 1.0, consequence=False, why=(WHY,), nodes=frozenset(event.nodes))
    return (*own, report), _named(rank, event.id, spot)


def _named(rank: str | None, event: str, spot: LineRef) -> tuple[OddNode, ...]:
    return () if rank is None else (OddNode(rank, TOLD, WHY, (event,), spot, spot.time),)
