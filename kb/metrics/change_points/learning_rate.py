"""Detects a learning rate that is off its schedule."""

from __future__ import annotations

import math

import numpy as np

from kb.metrics.change_points.track import Ints, SeriesChange, Track, make_change
from kb.metrics.panel import Floats


def off_schedule(series: Track, steps: int = 30, expected: Track | None = None) -> SeriesChange | None:
    """Detect a rate that differs from the `expected` schedule; else one that is NaN, 0 for long, stuck, or leaping.

    Without an expected schedule, a rate is stuck if it fell with every line and then stays, well above a usual floor (a
    tenth of its peak), for `steps` steps; it leaps if one line has twice the highest earlier rate.
    """
    usable = np.flatnonzero(~series.skip)
    values = series.values[usable]
    if expected is not None:
        return _off_expected(series, usable, expected)
    if usable.size < 12:
        return None
    if not np.isfinite(values[-2:]).any():
        bad = int(usable[np.flatnonzero(np.isfinite(values))[-1] + 1]) if np.isfinite(values).any() else int(usable[0])
        return make_change(
            series, "not_finite", bad, int(usable[-1]), 0.0, math.nan, text=f"{series.metric} is not finite"
        )
    usable = usable[np.isfinite(values)]
    return _leaps(series, usable) or _stuck(series, usable, steps)


def _stuck(series: Track, usable: Ints, steps: int) -> SeriesChange | None:
    """Return the change if the rate ends at 0 or part of the way down, and has been there for long."""
    values, at_step = series.values[usable], series.steps[usable]
    same = np.flatnonzero(values != values[-1])
    begin = int(same[-1]) + 1 if same.size else 0
    fewest = 5 if begin else steps  # a rate that never changed has no schedule: suspicious only in a long log
    if at_step[-1] - at_step[begin] < steps or values.size - begin < fewest:
        return None
    first, last, peak = int(usable[begin]), int(usable[-1]), float(values.max())
    before = values[max(0, begin - 10) : begin + 1]
    fell = before.size >= 6 and bool((np.diff(before) < 0).all())
    was = float(values[begin - 1]) if begin else 0.0
    if values[-1] == 0.0 and not (fell and was < 0.02 * peak):
        return make_change(series, "zero", first, last, was, 0.0)
    if fell and 0.15 * peak < values[-1] < 0.98 * peak:
        return make_change(series, "stuck", first, last, was, float(values[-1]))
    return None


def _leaps(series: Track, usable: Ints) -> SeriesChange | None:
    """Return the change if one line has twice the highest earlier rate, outside a warm-up."""
    values = series.values[usable]
    high = np.maximum.accumulate(values)
    for at in range(10, values.size - 1):  # the last line may be truncated
        before = float(high[at - 1])
        if (
            0 < 2.0 * before < min(values[at], values[at + 1])
            and values[at - 1] > 0
            and not _warming(values[at - 10 : at])
        ):
            return make_change(series, "leap", int(usable[at]), int(usable[at]), before, float(values[at]))
    return None


def _warming(before: Floats) -> bool:
    """Whether the rate rose with every line so far: the warm-up may continue in larger steps."""
    return bool((np.diff(before) > 0).all())


def _off_expected(series: Track, usable: Ints, expected: Track) -> SeriesChange | None:
    """Return the change if three lines in a row differ from the expected schedule by more than 5 %."""
    wanted = dict(zip(expected.steps.tolist(), expected.values.tolist(), strict=True))
    run = 0
    for place, at in enumerate(usable.tolist()):
        want = wanted.get(int(series.steps[at]))
        if want is None or not math.isfinite(want):
            continue
        value = float(series.values[at])
        run = run + 1 if not abs(value - want) <= 0.05 * abs(want) + 1e-12 else 0
        if run == 3:
            since = int(usable[max(0, place - 2)])
            return make_change(series, "off", since, at, want, value)
    return None
