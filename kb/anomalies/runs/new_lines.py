"""The last lines of a run that a good run has nothing like, whatever their words: each kind once, with the ranks that printed it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kb.anomalies.core.run import JOB, LineRef, RunEvent
from kb.anomalies.runs.baseline_diff import NEW
from kb.report import EvidenceItem, Indicator

MOST = 5
SHOWN = 200  # characters of a line
_NAMED = 8  # ranks or nodes


def new_lines(events: Iterable[RunEvent], fresh: Mapping[str, float]) -> tuple[Indicator, ...]:
    """Return the last few kinds of lines in order of their time. `fresh`: how new each event is, by its id."""
    found = [(_last(event), event) for event in events if event.nodes and fresh.get(event.id, 0.0) >= NEW]
    found.sort(key=lambda pair: pair[0].order)
    return tuple(
        Indicator(
            spot.text.strip()[:SHOWN], f"not in the last good run{_where(event)}", as_evidence(f"n{number}", spot)
        )
        for number, (spot, event) in enumerate(found[-MOST:], 1)
    )


def _last(event: RunEvent) -> LineRef:
    return max((seen.spots[-1] for seen in event.nodes.values() if seen.spots), key=lambda spot: spot.order)


def _where(event: RunEvent) -> str:
    names = sorted(event.nodes)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f", printed by {', '.join(names[:_NAMED])}{more}" if len(names) > 1 else ""


def as_evidence(name: str, spot: LineRef) -> EvidenceItem:
    """Return a line as evidence with this id, and with its node if that is no other name of its source or rank."""
    node = spot.node if spot.node not in (JOB, spot.source, f"rank {spot.rank}") else None
    return EvidenceItem(
        name, "line", spot.source, spot.text, offset=spot.offset, time=spot.time, rank=spot.rank, node=node
    )
