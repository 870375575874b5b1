"""Turns ranks that are slow by their own lines into structures. Every log diagnosis uses this, so it imports little."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kb.facts.evidence import Evidence
from kb.facts.steps.unread_forms import read_unread
from kb.hangs.rank_fields import slow_fields
from kb.hangs.rank_timing import LEAST_SECONDS, slow_ranks
from kb.hangs.sourced_structures import MOST, SourcedStructure, streams_of, structure_from
from kb.model import Resource, Scalar
from kb.scanning.summary import StreamSummary

_COMPARABLE = 100  # a factor from here on says less than the two values


def compare_ranks(evidence: Evidence) -> Evidence:
    """Return evidence that consists of logs only, with a structure for each rank that is slow by its own lines."""
    return replace(evidence, streams=(*evidence.streams, *streams_of(rank_log_structures(evidence.streams))))


def rank_log_structures(streams: Sequence[StreamSummary], *, uneven: bool = False) -> list[SourcedStructure]:
    """Return the ranks that are slow by their own lines. `uneven`: ranks differ by design."""
    streams = [read_unread(stream) for stream in streams]
    found: list[SourcedStructure] = []
    for place, item in enumerate(slow_ranks(streams, uneven=uneven)[:MOST]):
        standing = "yes" if item.standing else "no"
        fields: dict[str, Scalar] = peer_fields(item.metric, item.value, item.usual)
        fields |= {"place": place, "standing": standing}
        found.append(structure_from(item.source, "metrics", item.text, fields, Resource(rank=item.rank)))
    for alone in () if found else slow_fields(streams):
        fields = peer_fields(alone.metric, alone.value, alone.usual)
        fields |= {"place": 0, "field": alone.field}
        found.append(structure_from(alone.source, "metrics", alone.text, fields, Resource(rank=alone.rank)))
    return found


def peer_fields(metric: str, value: float, usual: float) -> dict[str, Scalar]:
    """Return the fields of a `peer_outlier` whose value exceeds its peers'."""
    return {
        "metric": metric,
        "way": "above",
        "size": round(value / usual - 1, 4) if usual else None,
        "times": f"{value / usual:.1f}" if usual and value < _COMPARABLE * usual else None,
        "value": f"{value:.3g} s",
        "usual": f"{usual:.3g} s" if usual > LEAST_SECONDS else f"at most {LEAST_SECONDS:g} s",
    }
