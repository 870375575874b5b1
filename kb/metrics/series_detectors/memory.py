"""Detectors of memory that grows without being released."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median

from kb.metrics.series_detectors.finding import SeriesFinding
from kb.model import ProgressPoint
from kb.parsers.logs.progress.quantities import memory_of


def memory_growth(points: Sequence[ProgressPoint], params: Mapping[str, float]) -> SeriesFinding | None:
    """Detect memory that rises from step to step and is never released."""
    known = [p for p in points if p.memory is not None and p.step is not None]
    if len(known) < 20:
        return None
    tail = known[len(known) // 4 :]
    values = [p.memory or 0.0 for p in tail]
    steps = (tail[-1].step or 0) - (tail[0].step or 0)
    half = len(values) // 2
    if min(values[half:]) < median(values[:half]):  # a sawtooth: the memory was released
        return None
    falls = sum(later < earlier for earlier, later in pairwise(values))
    rate = (values[-1] - values[0]) / steps if steps > 0 else 0.0
    if falls > 0.1 * len(values) or rate < params.get("bytes_a_step", 50e6) or values[-1] < 1.2 * values[0]:
        return None
    text = f"memory grows by {rate / 1e6:.0f} MB a step, from {values[0] / 1e9:.1f} to {values[-1] / 1e9:.1f} GB"
    return SeriesFinding(tail[-1], text, (("rate", f"{rate / 1e6:.0f}"),))


def use_grows(points: Sequence[ProgressPoint], _params: Mapping[str, float]) -> SeriesFinding | None:
    """Detect memory that grows linearly during training, from lines other than iteration lines."""
    series: dict[tuple[str, int | None], list[ProgressPoint]] = {}
    for point in points:
        if point.memory is not None and point.format.startswith("used "):
            series.setdefault((point.format, point.rank), []).append(point)
    steps = [p.offset for p in points if not p.validation]
    for known in series.values():
        values = [p.memory or 0.0 for p in known]
        during = sum(known[0].offset < offset <= known[-1].offset for offset in steps)
        during = max(during, len({p.step for p in known} - {None}))
        if (during >= 5 and rises_evenly(values)) or (not steps and _climbs_steadily(values)):
            text = f"memory in use grows from {values[0]:.4g} to {values[-1]:.4g} over {len(values)} lines"
            captures = (
                ("rate", f"{(values[-1] - values[0]) / len(values):.3g}"),
                ("memory_of", memory_of(known[0].format)),
            )
            return SeriesFinding(known[-1], text, captures, (known[0],))
    return None


def rises_evenly(values: Sequence[float], least: int = 6) -> bool:
    """Whether the values rise evenly to their end: a filling cache would level off."""
    if len(values) < least or values[-1] < 1.1 * values[0] or values[0] <= 0:
        return False
    rise = (values[-1] - values[0]) / (len(values) - 1)
    return all(abs(value - values[0] - rise * at) <= 0.12 * (values[-1] - values[0]) for at, value in enumerate(values))


def _climbs_steadily(values: Sequence[float]) -> bool:
    """Whether each of a few samples, taken by hand or by a watcher, is well above the previous one."""
    if len(values) < 4 or len(values) > 50 or values[-1] < 1.5 * max(values[0], 1.0):
        return False
    rises = [later - earlier for earlier, later in pairwise(values)]
    return min(rises) > 0 and rises[-1] >= 0.3 * sum(rises) / len(rises)
