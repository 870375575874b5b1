"""Changes of the loss and the gradient norm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from kb.metrics.change_points.track import SeriesChange, Track, first_not_finite, make_change, plain_median

RARE = 3  # so many higher values among the earlier ones may be passing jumps


def loss_broken(series: Track, above: float = 1e3, warm_up: int = 30) -> SeriesChange | None:
    """Return where a loss first breaks: NaN or infinite twice in a row or at the end, above 1e3, or fluctuating wildly.

    It fluctuates if five logged steps spread six times as far as its noise and most of them lie far above its level.
    """
    values = np.where(series.skip, np.nan, series.values)
    kept = np.flatnonzero(~series.skip)
    broken = first_not_finite(series, kept)
    if broken is not None:
        kept = kept[kept < broken[0]]
    known = kept[np.isfinite(values[kept])]
    known_values = values[known].tolist()  # plain Python: ten times as fast as numpy for windows of fifty
    for at in range(1, len(known_values)):
        here = int(known[at])
        if abs(known_values[at]) > above:
            usual = plain_median(known_values[max(0, at - 50) : at])
            if abs(usual) < 0.1 * above:
                return make_change(series, "above", here, here, usual, known_values[at])
        if at >= 24 and series.steps[here] - series.steps[0] >= warm_up:
            last = known_values[at - 4 : at + 1]
            jump = _jumps(known_values[max(0, at - 54) : at - 4], last)
            if jump is not None:
                return make_change(series, "variance", int(known[at - 4]), here, jump, plain_median(last))
    if broken is not None:
        text = f"{series.metric} is {series.values[broken[0]]} from step {int(series.steps[broken[0]])} on"
        return make_change(series, "not_finite", broken[0], broken[1], 0.0, float(series.values[broken[0]]), text=text)
    return None


def _jumps(prior: Sequence[float], last: Sequence[float]) -> float | None:
    """Return the usual level if five values spread far beyond its noise and most lie far above it; else None."""
    if len(prior) < 20:
        return None
    level = plain_median(prior[-10:])
    noise = max(1e-3 * abs(level), 1e-12)
    if sum(value > level + 5.0 * noise for value in last) < 3:
        return None
    noise = max(noise, 1.4826 * plain_median([abs(two - item) for item, two in pairwise(prior)]) / math.sqrt(2.0))
    usual = sorted(prior)[-RARE]  # what a noisy series has had several times before is no departure
    far = sum(value > max(level + 5.0 * noise, usual) for value in last)
    return level if far >= 3 and _spread(last) > 6.0 * noise else None


def _spread(values: Sequence[float]) -> float:
    """Return the standard deviation of a few numbers; infinity if their squares overflow."""
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) * (value - mean) for value in values) / len(values))


def gradient_jump(series: Track, times: float = 5.0, logged: int = 3) -> SeriesChange | None:
    """Return where the gradient norm first is many times its usual value for several lines, or NaN for long."""
    kept = np.flatnonzero(~series.skip)
    broken = first_not_finite(series, kept, 8)
    known = kept[np.isfinite(series.values[kept])]
    run = 0
    good: list[float] = []
    for at in known.tolist():
        value = float(series.values[at])
        usual = plain_median(good[-50:]) if len(good) >= 20 else math.inf
        run = run + 1 if value > times * usual else 0
        if not run:
            good.append(value)
        elif run == logged:
            since = int(known[np.searchsorted(known, at) - logged + 1])
            return make_change(series, "jump", since, at, usual, value)
    if broken is not None and broken[1] > broken[0]:
        text = f"{series.metric} is not finite from step {int(series.steps[broken[0]])} on"
        return make_change(series, "not_finite", broken[0], broken[1], 0.0, math.nan, text=text)
    return None
