"""Removes durations that are no time of a step, but the time since the start of the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from kb.model import ProgressPoint
from kb.scanning.summary import Series

LEAST_ELAPSED, ELAPSED = 8, 3.0  # lines, and the factor from the first to the last, of the time since the start
LEAST_COARSE = 20  # lines of whole seconds, in which several lines may have one time
LEAST_RESTARTS = 3  # of a bar whose clock runs on, to know that this is no chance
NOT_BACK = 0.95  # share of the time of the last epoch that a new one would need at once


def without_elapsed(series: Series, bar: str) -> Series:
    """Return the series without durations that are the time since the start of the run: they rise with every line.

    A step that takes longer and longer does not do so without a single exception. A bar that begins again with each epoch
    shows the mean over all of its time if its clock runs on. `bar`: the format of bars.
    """
    forms: dict[str, list[float]] = {}
    for point in series.points:
        if point.seconds is not None:
            forms.setdefault(point.format, []).append(point.seconds)
    elapsed = {form for form, values in forms.items() if _only_rises(values)}
    running = _running_clocks(series.points, bar)
    if not elapsed and not running:
        return series

    def counts(point: ProgressPoint) -> bool:
        return point.format in elapsed or (point.format == bar and point.total in running)

    return replace(series, points=tuple(replace(p, seconds=None) if counts(p) else p for p in series.points))


def _only_rises(values: Sequence[float]) -> bool:
    if len(values) < LEAST_ELAPSED or values[-1] < ELAPSED * values[0]:
        return False
    whole = len(values) >= LEAST_COARSE and all(value == int(value) for value in values)
    if whole and len(set(values)) >= LEAST_ELAPSED:  # several lines within one second
        return all(later >= earlier for earlier, later in pairwise(values))
    return all(later > earlier for earlier, later in pairwise(values))


def _running_clocks(points: Sequence[ProgressPoint], bar: str) -> frozenset[int]:
    """Return the lengths of bars whose time continues, although their count begins again with each epoch."""
    times: dict[int, list[tuple[int, float]]] = {}
    for point in points:
        if point.format == bar and point.total and point.step and point.seconds is not None:
            times.setdefault(point.total, []).append((point.step, point.step * point.seconds))
    found = set()
    for total, own in times.items():
        back = [(left, right) for (step, left), (again, right) in pairwise(own) if again < step]
        if len(back) >= LEAST_RESTARTS and all(right >= NOT_BACK * left for left, right in back):
            found.add(total)
    return frozenset(found)
