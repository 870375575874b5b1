"""One metric of one resource, its unit and sampling interval."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from kb.model import Resource
from kb.parsers.artefacts.promql.known_metrics import KnownMetric


@dataclass(frozen=True, slots=True)
class MetricSeries:
    """One metric of one resource: seconds since the epoch and values, unsorted and with duplicates.

    `counter`: values only rise, except at resets. `part` distinguishes parts of a resource (a port, a process state).
    """

    metric: str
    resource: Resource
    times: Sequence[float]
    values: Sequence[float]
    unit: str = ""
    counter: bool = False
    part: str = ""
    source: str = ""


def unit_factor(members: Sequence[MetricSeries], known: KnownMetric) -> float:
    """Return the factor that makes the values plausible in the metric's unit; 1 if they are, or if none does."""
    middle = median(median(m.values) for m in members)
    largest = max(max(m.values) for m in members)
    if known.unit == "%":
        if known.factor == 1.0 and largest <= 1.0 and any(0.0 < v < 1.0 for m in members for v in m.values):
            return 100.0  # a fraction instead of percent
        return 0.01 if known.factor == 100.0 and known.top < largest and 150.0 < largest <= 10_500.0 else 1.0
    if known.unit == "bytes" and known.factor > 1.0 and middle > known.top:
        return 1.0 / known.factor  # bytes instead of MiB
    return 1e-3 if known.unit == "W" and middle > known.top else 1.0


def sampling_interval(times: Sequence[float]) -> tuple[float, float]:
    """Return the usual time between points and the longest; zeros for fewer than three points."""
    ordered = sorted(set(times))
    steps = [later - earlier for earlier, later in pairwise(ordered)]
    return (median(steps), max(steps)) if len(steps) >= 2 else (0.0, 0.0)


def first_resources(members: Iterable[MetricSeries]) -> str:
    """Return the first few nodes or GPUs, for the scope of a gap."""
    names = dict.fromkeys(
        " ".join(part for part in (m.resource.node or m.resource.container or "?", m.resource.gpu or m.part) if part)
        for m in members
    )
    shown = list(names)[:8]
    return ", ".join(shown) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
