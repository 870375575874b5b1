"""Detects memory that grows and is not released."""

from __future__ import annotations

import numpy as np

from kb.metrics.change_points.track import Ints, SeriesChange, Track, make_change
from kb.metrics.panel import Floats


def memory_growth(series: Track, a_step: float = 50e6, window: int = 40) -> SeriesChange | None:
    """Detect memory that grows by `a_step` bytes per step until the series' end, over `window` steps or more."""
    usable = np.flatnonzero(np.isfinite(series.values) & ~series.skip)
    values, steps = series.values[usable], series.steps[usable]
    if usable.size < 6 or steps[-1] - steps[0] < window:
        return None
    falls = np.flatnonzero(np.diff(values) < -max(4 * a_step, 0.02 * float(values.max())))
    begin = int(falls[-1]) + 1 if falls.size else 0
    edges = steps[np.concatenate([[0], falls + 1])]
    usual = int(np.diff(edges).max()) if falls.size else 0  # memory was released after so many steps
    begin = max(begin, int(np.searchsorted(steps, steps[0] + 5)))  # the first steps allocate memory
    values, steps = values[begin:], steps[begin:]
    if values.size < 5 or steps[-1] - steps[0] < max(window, 2 * usual):
        return None
    late = values.size // 2
    rates = [_rate(steps[part], values[part]) for part in (slice(0, late), slice(late, None))]
    if min(rates) < a_step or (np.diff(values) < 0).mean() > 0.2:
        return None
    first, last = int(usable[begin]), int(usable[-1])
    rate = _rate(steps, values)
    text = f"memory grows by {rate / 1e6:.0f} MB a step, from {values[0] / 1e9:.1f} to {values[-1] / 1e9:.1f} GB"
    return make_change(series, "growth", first, last, float(values[0]), float(values[-1]), text=text)


def _rate(steps: Ints, values: Floats) -> float:
    """Return the rise per step, from the medians of both halves."""
    half = steps.size // 2
    apart = float(np.median(steps[half:]) - np.median(steps[:half]))
    return float(np.median(values[half:]) - np.median(values[:half])) / apart if apart > 0 else 0.0
