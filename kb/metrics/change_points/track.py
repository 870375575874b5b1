"""One quantity over steps, and a change in it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kb.metrics.panel import Bools, Floats

Ints = NDArray[np.int64]
LARGEST = 1e100  # larger than any real measurement; squares of smaller values stay finite


@dataclass(frozen=True, slots=True, eq=False)
class Track:
    """One quantity over steps, in order; NaN if it was not measured. `skip`: steps known to be of another kind.

    `times` are seconds since the epoch, NaN if unknown.
    """

    metric: str
    steps: Ints
    values: Floats
    times: Floats
    skip: Bools


@dataclass(frozen=True, slots=True)
class SeriesChange:
    """A change: its kind, the steps at which it began and could be detected, the levels before and after.

    `size`: after / before - 1. `z`: in units of the series' own noise; 0 if that does not apply.
    """

    metric: str
    kind: str
    since: int
    found: int
    before: float
    after: float
    size: float = 0.0
    z: float = 0.0
    time: float | None = None
    text: str = ""


def track(
    metric: str,
    values: Sequence[float] | Floats,
    steps: Sequence[int] | Ints | None = None,
    times: Sequence[float] | Floats | None = None,
    skip: Sequence[bool] | Bools | None = None,
) -> Track:
    """Return a series ordered by step; the last value given for a step counts.

    `steps`: 0, 1, 2, … without it. `times`: Unix times. `skip`: values that are not judged.

    Raises:
        ValueError: the lengths differ.
    """
    what = np.array(values, dtype=np.float64)
    what[np.abs(what) > LARGEST] = math.inf
    at = np.arange(what.size) if steps is None else np.asarray(steps, dtype=np.int64)
    when = np.full(what.size, np.nan) if times is None else np.asarray(times, dtype=np.float64)
    other = np.zeros(what.size, dtype=bool) if skip is None else np.asarray(skip, dtype=bool)
    if not what.size == at.size == when.size == other.size:
        raise ValueError("values, steps, times and skip must be of one length")
    order = np.argsort(at, kind="stable")
    at, what, when, other = at[order], what[order], when[order], other[order]
    last = np.append(at[1:] != at[:-1], True) if at.size else np.zeros(0, dtype=bool)
    return Track(metric, at[last], what[last], when[last], other[last])


def first_not_finite(series: Track, kept: Ints, on_end: int = 2) -> tuple[int, int] | None:
    """Return the first of several consecutive non-finite values, and the one that confirms it."""
    odd = ~np.isfinite(series.values[kept])
    run = 0
    for at in range(kept.size):
        run = run + 1 if odd[at] else 0
        if run == on_end or (run and at == kept.size - 1):
            return int(kept[at - run + 1]), int(kept[at])
    return None


def plain_median(values: Sequence[float]) -> float:
    """Return the median of a few finite numbers."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else 0.5 * (ordered[half - 1] + ordered[half])


def usable_places(series: Track, warm_up: int) -> Ints:
    """Return the indices of positive values after the warm-up, without steps of another kind."""
    kept = np.flatnonzero(np.isfinite(series.values) & (series.values > 0) & ~series.skip)
    return kept[warm_up:] if kept.size > 2 * warm_up else kept[:0]


def make_change(  # noqa: PLR0917 - a change is just these
    series: Track, kind: str, since: int, found: int, before: float, after: float, noise: float = 0.0, text: str = ""
) -> SeriesChange:
    """Return a change that began at the index `since` and was found at the index `found`.

    `before`, `after`: levels in the unit of the series. `noise`: the usual deviation of the level's logarithm, for the z-score.
    """
    size = after / before - 1 if before else 0.0
    time = float(series.times[since])
    z = math.log(after / before) / noise if noise and before > 0 and after > 0 else 0.0
    step = int(series.steps[since])
    return SeriesChange(
        series.metric,
        kind,
        step,
        int(series.steps[found]),
        before,
        after,
        size,
        z,
        time if math.isfinite(time) else None,
        text or f"{series.metric} goes from {before:.4g} to {after:.4g} ({size:+.1%}) at step {step}",
    )
