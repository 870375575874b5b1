"""Medians over the cells of a panel; NaN marks a cell without a measurement."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from kb.metrics.panel import Floats


def known_median(values: Floats, axis: int) -> Floats:
    """Return the median of the known values along an axis; NaN if there are none."""
    if not values.shape[axis]:
        return np.full(values.shape[1 - axis] if values.ndim == 2 else (), np.nan)
    ordered = np.sort(values, axis=axis)  # NaN last
    count = np.isfinite(ordered).sum(axis=axis)
    low = np.maximum(count - 1, 0) // 2
    high = np.maximum(count // 2, 0)
    high = np.minimum(high, values.shape[axis] - 1)
    picked: list[Floats] = [
        np.take_along_axis(ordered, np.expand_dims(at, axis), axis).squeeze(axis) for at in (low, high)
    ]
    return np.where(count > 0, (picked[0] + picked[1]) / 2, np.nan)


def smoothed(values: Floats, width: int = 5) -> Floats:
    """Return the running median of each row over a cell and the `width` - 1 before it; NaN where all are unknown."""
    padded = np.concatenate([np.full((values.shape[0], width - 1), np.nan), values], axis=1)
    smooth = np.empty_like(values)
    for begin in range(0, values.shape[0], 1024):  # the windows of all rows would be five panels large
        windows = sliding_window_view(padded[begin : begin + 1024], width, axis=1)
        ordered = np.sort(windows, axis=2)
        count = np.isfinite(ordered).sum(axis=2)
        at = np.maximum(count - 1, 0) // 2
        smooth[begin : begin + 1024] = np.take_along_axis(ordered, at[:, :, None], 2).squeeze(2)
    return smooth


def noise(past: Floats) -> Floats:
    """Return the median absolute deviation of each row from a line fitted to its past."""
    half = past.shape[1] // 2
    early, late = known_median(past[:, :half], axis=1), known_median(past[:, half:], axis=1)
    slope = np.nan_to_num((late - early) / max(1, past.shape[1] - half))
    level = past - slope[:, None] * np.arange(past.shape[1])
    off: Floats = known_median(np.abs(level - known_median(level, axis=1)[:, None]), axis=1)
    return off


def recent_level(cells: Floats) -> Floats:
    """Return the median of each row; NaN where less than 60 % of its cells were measured."""
    level = known_median(cells, axis=1)
    level[np.isfinite(cells).sum(axis=1) < 0.6 * cells.shape[1]] = np.nan
    return level
