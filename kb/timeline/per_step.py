"""Values by step of each rank or node, in a bounded number of columns: the input of curves and heat maps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

import numpy as np

from kb.facts.evidence import Evidence
from kb.facts.job_facts import Facts
from kb.facts.topology import Places
from kb.metrics.panel import Floats
from kb.model import OWN as OWN_LINE
from kb.model import ProgressPoint, Resource


def points_by_origin(evidence: Evidence) -> dict[Resource, list[ProgressPoint]]:
    """Rank or node → its iteration lines of training, and the lines in which ranks report their own part of a step."""
    found: dict[Resource, list[ProgressPoint]] = {}
    for _, who, point in points_by_log(evidence):
        found.setdefault(who, []).append(point)
    return found


def points_by_log(evidence: Evidence) -> Iterator[tuple[int, Resource, ProgressPoint]]:
    """Yield those lines, each with the index of its log and its rank or node."""
    facts = Facts(evidence)
    places = Places(facts)
    for index, stream in enumerate(facts.streams):
        if stream.summary.ref.kind != "job":
            continue
        own = places.place(index, stream.summary.ref.resource)
        owned = [point for point in stream.summary.series.points if point.format == OWN_LINE]
        for point in (*stream.points, *owned):
            if point.step is None or abs(point.step) >= 1 << 53:
                continue
            rank = own.rank if point.rank is None else point.rank
            node = places.node_of(rank) or own.node
            yield index, Resource(node=node, rank=rank), point


def values_of(points: Sequence[ProgressPoint], metric: str) -> list[tuple[int, float]]:
    """Return the step and the value of each line that has both."""
    return [(p.step, float(v)) for p in points if p.step is not None and (v := getattr(p, metric)) is not None]


def usual_by_step(progress: Mapping[Resource, Sequence[ProgressPoint]], metric: str) -> dict[int, float]:
    """Return step → the median of all ranks that have a value of it."""
    every: dict[int, list[float]] = {}
    for points in progress.values():
        for step, value in values_of(points, metric):
            every.setdefault(step, []).append(value)
    return {step: median(values) for step, values in every.items()}


def by_step(points: Sequence[ProgressPoint], usual: Mapping[int, float], metric: str) -> list[tuple[int, float]]:
    """Return the step, and how far the value of one rank is from the usual one, as a share, where both are known."""
    own = sorted(values_of(points, metric))
    return [(step, value / usual[step] - 1.0) for step, value in own if usual[step]]


def binned(found: Sequence[tuple[int, float]], start: int, width: float, count: int) -> tuple[Floats, frozenset[int]]:
    """Return values by step as columns, the mean of each, NaN for none; and the columns with values that are not finite."""
    at = np.array([min(count - 1, int((step - start + 0.5) / width)) for step, _ in found])
    what = np.array([value for _, value in found], dtype=np.float64)
    good = np.isfinite(what) & (np.abs(what) < 1e100)
    sums = np.bincount(at[good], weights=what[good], minlength=count)
    counts = np.bincount(at[good], minlength=count)
    values = np.full(count, np.nan)
    np.divide(sums, counts, out=values, where=counts > 0)
    return values, frozenset(int(item) for item in np.unique(at[~good]))


def rank_order(item: tuple[Resource, object]) -> tuple[int, str]:
    """Return the key that sorts ranks in order, followed by rows without a rank."""
    return (1 << 62 if item[0].rank is None else item[0].rank, item[0].node or "")
