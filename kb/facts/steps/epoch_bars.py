"""Finds progress bars that count epochs, by the numbers of epochs that other lines print."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import replace

from kb.model import ProgressPoint
from kb.scanning.summary import Series

_LEAST_EPOCHS = 2  # as many of them as a bar has steps, from which on this is no chance


def without_epoch_bars(series: Series, bar: str) -> Series:
    """Return the series without bars that count epochs, as these are no steps; a series that ends with a complete bar is kept.

    Such a bar has as many steps as epochs are reported, or has moved by one wherever an epoch is. `bar`: the format of bars.
    """
    told = [p for p in series.points if p.format != bar and p.step is None and p.epoch is not None and not p.validation]
    bars = [p for p in series.points if _is_unlabelled(p, bar)]
    if not told or not bars or len({p.total for p in bars}) > 1 or bars[-1].step == bars[-1].total:
        return series
    epochs = {p.epoch for p in told if p.epoch is not None}
    whole = all(epoch == int(epoch) for epoch in epochs)
    if not whole or not (_all_told(epochs, bars[0].total or 0) or _moves_with(told, bars)):
        return series
    kept = tuple(p for p in series.points if not _is_unlabelled(p, bar))
    return replace(series, points=kept, first=next(iter(kept), None), last=kept[-1])


def _is_unlabelled(point: ProgressPoint, bar: str) -> bool:
    return point.format == bar and not point.validation and point.epoch is None and bool(point.total)


def _all_told(epochs: Collection[float], total: int) -> bool:
    """Whether the numbers of epochs are those of as many epochs as a bar has steps."""
    return (
        len(epochs) == total >= _LEAST_EPOCHS and min(epochs) in (0.0, 1.0) and max(epochs) - min(epochs) == total - 1
    )


def _moves_with(told: Sequence[ProgressPoint], bars: Sequence[ProgressPoint]) -> bool:
    """Whether the last step of the bars before each line with an epoch is that epoch, counted from 0 or from 1."""
    offsets = [bar.offset for bar in bars]
    before = [bars[place - 1].step or 0 for point in told if (place := bisect_right(offsets, point.offset))]
    ahead = {step - (point.epoch or 0.0) for step, point in zip(before, told, strict=False)}
    others = {bar.step for bar in bars if bar.offset <= told[-1].offset} - {0, *before}
    return len(before) == len(told) and before[-1] > 0 and len(ahead) == 1 and ahead <= {0.0, 1.0} and not others
