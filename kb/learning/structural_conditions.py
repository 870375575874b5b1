"""Conditions on evidence other than lines: what stacks, recorders and peers show about a rank, and how a series changed."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kb.learning.cases import Case, Observation
from kb.learning.negative_corpus import Background

# what a rule may ask of each kind, the most general first: the fields that are independent of a run
ASKED: Mapping[str, tuple[str, ...]] = {
    "stack_outlier": ("class", "shared", "activity", "context", "frame"),
    "collective_culprit": ("why", "op", "state"),
    "peer_outlier": ("metric", "way", "standing"),
    "slow_phase": ("phase",),
    "off_plan": ("what",),
    "hang": ("state", "blocked_on"),
    "series": ("metric", "change"),
}
WEAK = frozenset({"hang"})  # true of any hang: only if nothing says more
_LINE = re.compile(r":\d{1,6}(?=\)|$)|:\d{1,6}\b")


@dataclass(frozen=True, slots=True)
class SharedObservation:
    """An observation that cases share: its pattern, and the texts of other faults that have it too, by index."""

    kind: str
    fields: Mapping[str, str]
    values: Mapping[str, Any]
    support: frozenset[int]
    counter: tuple[int, ...]


def shared_observations(
    cases: Sequence[Case], background: Background, besides: Collection[str]
) -> list[SharedObservation]:
    """What the cases' observations have in common, those first that no incident of another fault has; few fields before many."""
    found: dict[tuple[str, tuple[tuple[str, str], ...]], set[int]] = {}
    for case in cases:
        for item in case.observed:
            for fields in _more_and_more(item):
                found.setdefault((item.kind, fields), set()).add(case.id)
    told = []
    for (kind, fields), support in found.items():
        counter = tuple(
            index
            for index, item in enumerate(background.others)
            if item.fault is not None
            and item.fault not in besides
            and any(has(seen, kind, dict(fields)) for seen in item.observed)
        )
        told.append(SharedObservation(kind, dict(fields), _values(kind, fields), frozenset(support), counter))
    told.sort(
        key=lambda item: (
            -len(item.support),
            len(item.counter) > 0,
            item.kind in WEAK,
            len(item.fields),
            repr(item.values),
        )
    )
    return told


def has(seen: Observation, kind: str, fields: Mapping[str, str]) -> bool:
    """Whether an observation has this kind and these fields."""
    return seen.kind == kind and all(_plain(seen.fields.get(name, "")) == value for name, value in fields.items())


def _more_and_more(observation: Observation) -> list[tuple[tuple[str, str], ...]]:
    """The first field, the first two, and so on, of those that the observation has."""
    names = [name for name in ASKED.get(observation.kind, ()) if observation.fields.get(name)]
    fields = [(name, _plain(observation.fields[name])) for name in names]
    if observation.kind == "series":
        return [tuple(fields)] if len(fields) == 2 else []
    return [tuple(fields[: count + 1]) for count in range(len(fields))]


def _plain(value: str) -> str:
    """A field without line numbers of code."""
    return _LINE.sub(":", value)


def _values(kind: str, fields: Sequence[tuple[str, str]]) -> dict[str, Any]:
    if kind == "series":
        return {"series": dict(fields)}
    tests = {
        name: re.escape(value).replace(r"\ ", " ").replace(":", r":\d{0,6}") if name == "frame" else value
        for name, value in fields
    }
    return {"structure": {"kind": kind, "fields": tests}}
