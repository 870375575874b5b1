"""Detects a slowdown from the times of step lines, in logs that state neither step times nor rates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from kb.metrics.series_detectors.finding import SeriesFinding
from kb.metrics.series_detectors.pace import BARS, slow_down
from kb.model import OWN, RESIZED, ProgressPoint

SHARE = 0.4  # of the usual time between steps: between two lines there may be evaluations, saves and other work, too
RESOLUTION, WHOLE = 0.001, 1.0  # seconds, of times with a fraction, and without
LEAST_TICKS = 20  # of the clock in an interval, so that its rounding does not count
_BESIDE = frozenset({*BARS, OWN, RESIZED, "used", "rate", "loss_scale"})


def clock_slows(points: Sequence[ProgressPoint], params: Mapping[str, float]) -> SeriesFinding | None:
    """Detect steps that follow each other more slowly from some point on until the end of the log, by the times of their lines.

    Only where no line states a step time or a rate, which say more. Steps are taken once each, however many ranks print them.
    """
    if any(p.seconds or p.throughput for p in points if not p.validation):
        return None
    timed = [p for p in points if p.time is not None and p.step is not None and p.format not in _BESIDE]
    return slow_down(list(_intervals(timed)), {**params, "share": min(SHARE, params.get("share", SHARE))})


def _intervals(timed: Sequence[ProgressPoint]) -> Iterator[ProgressPoint]:
    """Yield the lines of new steps, each with the mean seconds of a step since the line before; none after a restart of the count."""
    tick = WHOLE if all(float(p.time or 0.0).is_integer() for p in timed) else RESOLUTION
    before: ProgressPoint | None = None
    for point in timed:
        if before is None or (point.step or 0) < (before.step or 0):
            # another rank's line of the same steps is a little behind; a new count begins far below
            if before is None or 2 * (point.step or 0) < (before.step or 0):
                before = point
            continue
        steps, seconds = (point.step or 0) - (before.step or 0), (point.time or 0.0) - (before.time or 0.0)
        if seconds < 0:
            before = point
        elif steps > 0 and seconds >= LEAST_TICKS * tick:
            yield replace(point, seconds=seconds / steps)
            before = point
