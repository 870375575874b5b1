"""What is known of a template while a part of a stream is being read; its lines are read only once the part is closed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from kb.templates.edges import Edges
from kb.templates.masking import LineShape
from kb.templates.template import Occurrence, Template, TemplatePlace, common, standing_for, voices

SHOWN = 512  # characters of a line


class Sighting(NamedTuple):
    """A place that has not been read yet. `time`: its own, or that of the last line before it that has one."""

    offset: int
    number: int
    line: bytes
    time: float | None
    step: int | None
    shape: LineShape


@dataclass(slots=True)
class Record:
    """A template while a part of a stream is being read."""

    template: Template
    number: int
    edges: Edges[Sighting]
    ranked: Edges[Sighting]  # lines that name a rank
    count: int = 0
    ranks: Counter[int] = field(default_factory=Counter)
    nodes: Counter[str] = field(default_factory=Counter)


def folded_records(records: Mapping[str, Record], names: Mapping[str, str | None]) -> dict[str, Record]:
    """The records of templates that fold into one, merged before places are made of what they saw."""
    found: dict[str, Record] = {}
    for key, record in records.items():
        name = names.get(key, key)
        if name is None:
            continue
        if name != key:
            record.template = standing_for(record.template, name)
        if name not in found:
            found[name] = record
            continue
        other = found[name]
        text = common(other.template.text, record.template.text)
        if text != other.template.text:
            other.template = replace(other.template, text=text)
        other.count += record.count
        other.edges.merge(record.edges)
        other.ranked.merge(record.ranked)
        other.ranks.update(record.ranks)
        other.nodes.update(record.nodes)
    return found


def occurrence_of(record: Record) -> Occurrence:
    """What a record saw, as the table keeps it."""
    kept = (record.edges.first, record.edges.last, record.ranked.first, record.ranked.last)
    places = {seen.offset: place_of(seen) for edge in kept for seen in edge}
    first, last, ranked_first, ranked_last = (tuple(places[seen.offset] for seen in edge) for edge in kept)
    return Occurrence(
        record.template,
        record.count,
        first,
        last,
        voices({}, record.ranks),
        voices({}, record.nodes),
        ranked_first,
        ranked_last,
    )


def place_of(seen: Sighting) -> TemplatePlace:
    """Read the place of a line."""
    shape = seen.shape
    return TemplatePlace(
        seen.offset,
        seen.number,
        seen.line.decode("utf-8", "replace").strip()[:SHOWN],
        seen.time,
        seen.step,
        None if shape.rank is None else int(seen.line[shape.rank[0] : shape.rank[1]]),
        None if shape.node is None else seen.line[shape.node[0] : shape.node[1]].decode("utf-8", "replace"),
    )
