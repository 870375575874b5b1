"""Structures that do not come from logs. Each of their sources becomes a separate stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from kb.model import Resource, Scalar, SourceKind, StreamRef, Structure
from kb.scanning.summary import StreamSummary
from kb.values import dataclass

MOST = 16  # maximum number of structures of one kind


@dataclass(frozen=True, slots=True)
class SourcedStructure:
    """A structure and its source."""

    source: str
    kind: SourceKind
    group: str
    structure: Structure


_KINDS: Mapping[str, str] = {
    "stacks": "stack_outlier",
    "collectives": "collective_culprit",
    "metrics": "peer_outlier",
    "events": "platform_event",
    "probes": "hang",
    "phases": "slow_phase",
    "plan": "off_plan",
}


def structure_from(source: str, group: str, line: str, fields: Mapping[str, Scalar], who: Resource) -> SourcedStructure:
    """Return a structure of `group` without its empty fields."""
    filled = {name: value for name, value in fields.items() if value is not None and value != ""}
    where: SourceKind = "stack" if group == "stacks" else "event"
    kind = _KINDS[group]
    return SourcedStructure(source, where, group, Structure(kind, 0, 1, line[:512], filled, who))


def streams_of(found: Iterable[SourcedStructure]) -> Iterator[StreamSummary]:
    """Return one stream per source, with its structures in order."""
    sources: dict[tuple[str, SourceKind, str], list[Structure]] = {}
    for sourced_structure in found:
        sources.setdefault((sourced_structure.source, sourced_structure.kind, sourced_structure.group), []).append(
            sourced_structure.structure
        )
    for (uri, kind, group), members in sources.items():
        placed = tuple(replace(item, offset=at, end=at + 1) for at, item in enumerate(members))
        yield StreamSummary(StreamRef(uri, kind=kind, group=group), structures=placed)
