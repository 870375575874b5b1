"""The detectors by name, and the function that runs one over the points of a stream."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from kb.metrics.series_detectors.clock import clock_slows
from kb.metrics.series_detectors.finding import SeriesFinding
from kb.metrics.series_detectors.learning_rate import (
    MOST_RUNS,
    learning_rate_off_schedule,
    learning_rate_stuck,
    loss_scale_minimum,
    scale_falls,
)
from kb.metrics.series_detectors.loss import loss_not_finite, loss_spike, spikes_beside
from kb.metrics.series_detectors.memory import memory_growth, use_grows
from kb.metrics.series_detectors.pace import BARS, side_rate_falls, slow_down, slow_step
from kb.model import RESIZED, ProgressPoint


def detect(name: str, points: Sequence[ProgressPoint], params: Mapping[str, float]) -> tuple[SeriesFinding, ...]:
    """Run one detector over the points of a stream.

    Side lines (validation losses, loss-scale reductions, rates, memory in use) are checked if the iteration lines show
    nothing; then the times of the iteration lines.
    """
    training = [p for p in points if not p.validation]
    parts = comparable_runs(points, training) if name in COMPARING else [training]
    found = next((item for item in (DETECTORS[name](part, params) for part in parts) if item), None)
    if found is None and name in BESIDE:
        found = BESIDE[name](points, params)
    if found is None and name == "throughput_drop":
        found = next((item for item in (clock_slows(part, params) for part in parts) if item), None)
    return (found,) if found else ()


def comparable_runs(points: Sequence[ProgressPoint], training: list[ProgressPoint]) -> list[list[ProgressPoint]]:
    """Return the training points in groups of comparable ones.

    Lines with another total belong to another run in the same file, as do those after which steps are counted from the
    start again; after a line that reports another batch or sequence size, steps do other work. Totals that differ all
    the time are lengths of epochs.
    """
    totals = dict.fromkeys(p.total for p in training if p.total is not None and p.format not in BARS)
    runs = [training]
    if 2 <= len(totals) <= MOST_RUNS:
        runs = [[p for p in training if p.total in (None, total) or p.format in BARS] for total in totals]
    runs = [part for run in runs for part in _apart(run)]
    resized = [p.offset for p in points if p.format == RESIZED]
    if not resized:
        return runs
    parts: list[list[ProgressPoint]] = []
    for run in runs:
        pieces: dict[int, list[ProgressPoint]] = {}
        for point in run:
            pieces.setdefault(bisect_right(resized, point.offset), []).append(point)
        parts += pieces.values()
    return parts


def _apart(points: list[ProgressPoint]) -> list[list[ProgressPoint]]:
    """Return the points before and after each place where the count of steps begins again, as that of a next stage of training.

    All of them together if that happens often and at much the same step: then the steps count within epochs.
    """
    begins, last, ends = [0], dict[str, int](), list[int]()
    for index, point in enumerate(points):
        if point.step is None or point.format in BARS:
            continue
        if point.step < AGAIN * last.get(point.format, 0):
            begins.append(index)
            ends.append(last.get(point.format, 0))
            last.clear()
        last[point.format] = point.step
    alike = sum(min(pair) >= ALIKE * max(pair) for pair in pairwise(ends))
    if len(begins) > MOST_RUNS and 2 * alike >= len(ends) - 1:
        return [points]
    return [points[start:stop] for start, stop in zip(begins, [*begins[1:], len(points)], strict=True)]


DETECTORS: Mapping[str, Callable[[Sequence[ProgressPoint], Mapping[str, float]], SeriesFinding | None]] = {
    "loss_not_finite": loss_not_finite,
    "loss_spike": loss_spike,
    "throughput_drop": slow_down,
    "straggler_step": slow_step,
    "memory_growth": memory_growth,
    "lr_stuck": learning_rate_stuck,
    "lr_off_schedule": learning_rate_off_schedule,
    "loss_scale_minimum": loss_scale_minimum,
}
BESIDE: Mapping[str, Callable[[Sequence[ProgressPoint], Mapping[str, float]], SeriesFinding | None]] = {
    "loss_spike": spikes_beside,
    "throughput_drop": side_rate_falls,
    "memory_growth": use_grows,
    "loss_scale_minimum": scale_falls,
}
ALIKE = 0.8  # share of the longer of two epochs that the shorter has, as far as their lines are kept
AGAIN = 0.1  # share of the last step below which a run did not resume from a checkpoint, but began
COMPARING = ("loss_spike", "throughput_drop", "straggler_step")  # compare earlier with later points
JOB_DETECTORS = (
    "collective_behind",
    "collectives_differ",
    "loss_turned_nan",
)  # run over what all streams hold, not over one series
