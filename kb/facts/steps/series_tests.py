"""Tests of rules on a series: a metric over the steps of a run, from iteration lines or from metrics of the bundle.

Windows count steps, whatever the logging interval. Missing values are skipped and never 0; steps right after an
evaluation or a checkpoint are skipped, and so are first steps if the rule says so.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

import numpy as np

from kb.metrics.change_points.learning_rate import off_schedule
from kb.metrics.change_points.memory import memory_growth
from kb.metrics.change_points.step_time import Slowing, decline, slower, throughput_drop
from kb.metrics.change_points.track import SeriesChange, Track, track
from kb.metrics.change_points.training import gradient_jump, loss_broken
from kb.metrics.panel import Bools, Panel, make_panel
from kb.metrics.series_detectors.detect import comparable_runs
from kb.metrics.series_detectors.pace import BARS
from kb.model import OWN, ProgressPoint, Resource
from kb.rulebase.rule import MEASURED, SeriesTest
from kb.scanning.summary import StreamSummary

SHARE = "gpu_memory_share"  # percent; computed from gpu_memory and gpu_memory_free
MOST_TRACKS = 2048  # of one metric: all ranks do the same work
MOST_SPOTS = 4
COMPARED = frozenset(
    {"step_time", "throughput", "loss", "grad_norm", "compute_time"}
)  # not across a change of the step size
PASSING = frozenset({"broken", "jump", "drop"})  # what a run recovers from is not a fault
BACK = 10  # last points that must be back to normal
LEAST_RISE, LEAST_LOSS = 0.05, 0.01  # of a loss that fluctuates, as a share of its level and as a number
WORK = 0.97  # of the earlier throughput: then longer steps do more work
LEAST_PAST = 5  # minimum number of values for a mean
PAST = 200
FEW = 20  # points of memory; too few for a leak, unless the other ranks show none
_LOW_IS_BAD = ("throughput", "mfu", "tokens", "samples", "tflops")
_SKIPPED = ("evaluating", "saving")


@dataclass(frozen=True, slots=True)
class Spot:
    """A point at which a series passes a rule's test. `stream`: None for a metric of the bundle; `text`: for people."""

    stream: int | None
    offset: int
    step: int | None
    time: float | None
    text: str
    captures: Mapping[str, str]
    resource: Resource


@dataclass(frozen=True, slots=True, eq=False)
class _Line:
    """One series: its resource, and its points by step (none for a metric of the bundle)."""

    track: Track
    stream: int | None
    who: Resource
    name: str
    points: Mapping[int, ProgressPoint]


def look(
    test: SeriesTest,
    streams: Sequence[tuple[int, StreamSummary]],
    panels: Mapping[str, Panel],
    timed: Sequence[tuple[float, int]] = (),
) -> tuple[Spot, ...]:
    """Return where the series of a metric pass the test, at most `MOST_SPOTS`; a rank is named only if it alone does.

    `timed`: times and steps of the run, to convert the columns of a metric to steps.
    """
    lines = [*_of_logs(test.metric, streams), *_of_panels(test.metric, panels, timed)][:MOST_TRACKS]
    found = [
        (line, change) for line in lines for change in _changes(test, line.track)[:1] if not _more_work(line, change)
    ]
    few = max(1, len(lines) // 5)
    alone = len(lines) >= 3 and len(found) <= few
    if test.change == "growth" and not alone:
        found = [(line, change) for line, change in found if line.track.values.size >= FEW]
    found.sort(key=lambda item: (item[1].since, item[0].name))
    return tuple(_spot(line, change, alone=alone) for line, change in found[:MOST_SPOTS])


def _of_logs(metric: str, streams: Sequence[tuple[int, StreamSummary]]) -> Iterator[_Line]:
    field = MEASURED.get(metric)
    for index, summary in streams if field else ():
        parts: dict[tuple[int | None, bool], list[ProgressPoint]] = {}
        for point in summary.series.points:
            known = getattr(point, field or "") is not None and point.step is not None and abs(point.step) < 1 << 60
            if known and (not point.validation or point.format == OWN):
                parts.setdefault((point.rank, point.format == OWN), []).append(point)
        compared = [
            (rank, own, piece)
            for (rank, own), points in parts.items()
            for same in (_by_bar(points) if metric in COMPARED else [points])
            for piece in (comparable_runs(summary.series.points, same) if metric in COMPARED else [same])
        ]
        for rank, own, points in compared:
            values = [float(getattr(point, field or "")) for point in points]
            times = [math.nan if point.time is None else point.time for point in points]
            steps = [point.step or 0 for point in points]
            skip = [False] * len(points) if own else _skips(summary, points)
            who = Resource(node=summary.ref.resource.node, rank=rank)
            name = f"rank {rank}" if rank is not None else summary.ref.uri
            by_step = {point.step or 0: point for point in points}
            yield _Line(track(metric, values, steps, times, skip), index, who, name, by_step)


def _by_bar(points: Sequence[ProgressPoint]) -> list[list[ProgressPoint]]:
    """Split points of bars by the bar's length: a bar of another length counts other work, such as an evaluation."""
    kinds: dict[int | None, list[ProgressPoint]] = {}
    for point in points:
        kinds.setdefault(point.total if point.format in BARS else None, []).append(point)
    return list(kinds.values())


def _skips(summary: StreamSummary, points: Sequence[ProgressPoint]) -> list[bool]:
    """Return the points right after an evaluation or a checkpoint; unknown for thinned series."""
    marks = [mark.offset for mark in summary.marks if mark.stage in _SKIPPED]
    if summary.series.mask or not marks:
        return [False] * len(points)
    seen = [0, *(bisect_right(marks, point.offset) for point in points)]
    return [later > earlier for earlier, later in pairwise(seen)]


def _of_panels(metric: str, panels: Mapping[str, Panel], timed: Sequence[tuple[float, int]]) -> Iterator[_Line]:
    panel = panels.get(metric) or (_share(panels) if metric == SHARE else None)
    if panel is None or not panel.values.shape[1]:
        return
    steps = _steps(panel, timed)
    for at, row in enumerate(panel.rows[:MOST_TRACKS]):
        known = panel.mask[at]  # a missing value is not a nan
        series = track(metric, panel.values[at][known], steps[known], panel.times[known])
        yield _Line(series, None, row.resource, row.name, {})


def _steps(panel: Panel, timed: Sequence[tuple[float, int]]) -> np.ndarray:
    """Return the run's step at each column if known, else the column's number."""
    ordered = sorted(timed)
    if len(ordered) < 2 or ordered[-1][0] <= ordered[0][0]:
        return np.arange(panel.values.shape[1])
    times, steps = (np.array(part, dtype=np.float64) for part in zip(*ordered, strict=True))
    slope = (steps[-1] - steps[0]) / (times[-1] - times[0])
    if slope <= 0:
        return np.arange(panel.values.shape[1])
    at = np.round(steps[0] + slope * (panel.times - times[0])).astype(np.int64)
    return np.asarray(np.maximum.accumulate(at))


def _share(panels: Mapping[str, Panel]) -> Panel | None:
    """Return a GPU's memory in use, in percent; None unless used and free memory have the same rows and times."""
    used, free = panels.get("gpu_memory"), panels.get("gpu_memory_free")
    if used is None or free is None or used.rows != free.rows or used.values.shape != free.values.shape:
        return None
    if (used.start, used.step) != (free.start, free.step):
        return None
    whole = used.values + free.values
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(whole > 0, 100.0 * used.values / whole, np.nan)
    return make_panel(SHARE, used.rows, used.start, used.step, share, "%")


def _changes(test: SeriesTest, series: Track) -> tuple[SeriesChange, ...]:
    if test.after and series.steps.size:
        series = replace(series, skip=series.skip | (series.steps < series.steps[0] + test.after))
    if test.change is None:
        return _level(test, series)
    found = CHANGES[test.change](series, dict(test.params))
    return tuple(item for item in found if not (test.change in PASSING and _over(series, item)))


def _over(series: Track, change: SeriesChange) -> bool:
    """Whether the series returned to its level and stays there until the end."""
    later = series.values[(series.steps > change.found) & np.isfinite(series.values) & ~series.skip]
    if later.size < BACK:
        return False
    rise = change.after - change.before
    now = float(np.median(later[-BACK:])) - change.before
    return bool(now * np.sign(rise) <= 0.25 * abs(rise))


def _more_work(line: _Line, change: SeriesChange) -> bool:
    """Whether throughput is unchanged while steps take longer: the steps are larger."""
    if line.track.metric != "step_time":
        return False
    rates = [(step, point.throughput) for step, point in sorted(line.points.items()) if point.throughput]
    before = [rate for step, rate in rates if step < change.since][-50:]
    after = [rate for step, rate in rates if step >= change.since][-50:]
    return len(before) >= 2 and len(after) >= 2 and bool(np.median(after) >= WORK * np.median(before))


def _one(change: SeriesChange | None) -> tuple[SeriesChange, ...]:
    return () if change is None else (change,)


def _slower(series: Track, params: Mapping[str, float]) -> tuple[SeriesChange, ...]:
    usual = Slowing()
    return slower(
        series,
        Slowing(
            share=params.get("share", usual.share),
            past=int(params.get("past", usual.past)),
            least_past=int(params.get("least_past", usual.least_past)),
            warm_up=int(params.get("warm_up", usual.warm_up)),
        ),
    )


def _broken(series: Track, params: Mapping[str, float]) -> tuple[SeriesChange, ...]:
    """Return a loss that diverges while still finite; a loss that ends as nan is reported as such instead.

    A few losses that fluctuate are no departure until it is known that those after them do not come back, nor if they
    rise by a few percent or near zero.
    """
    if not _finite(series)[-1:].all():
        return ()
    found = loss_broken(series, params.get("above", 1e3), int(params.get("warm_up", 30)))
    if found is None or found.kind == "not_finite":
        return ()
    if found.kind == "variance":
        small = found.after - found.before < max(LEAST_RISE * abs(found.before), LEAST_LOSS)
        if small or int(np.sum(series.steps > found.found)) < BACK:
            return ()
    return (found,)


def _jump(series: Track, params: Mapping[str, float]) -> tuple[SeriesChange, ...]:
    """Return a jump of the gradient norm that stays; one that ends as nan is the end of a run whose numbers overflowed."""
    if not _finite(series)[-1:].all():
        return ()
    return _one(gradient_jump(series, params.get("times", 5.0), int(params.get("logged", 3))))


def _not_finite(series: Track, _: Mapping[str, float]) -> tuple[SeriesChange, ...]:
    """Return a loss that is not finite at its end, or twice in a row without an earlier problem."""
    known = _finite(series)
    if known.all():
        return ()
    if not known[-1]:
        series = replace(series, skip=series.skip | np.isfinite(series.values))
    found = loss_broken(series)
    return (found,) if found is not None and found.kind == "not_finite" else ()


def _finite(series: Track) -> Bools:
    """Return for each value that is not skipped whether it is finite."""
    return np.isfinite(series.values[~series.skip])


def _decline(series: Track, params: Mapping[str, float]) -> tuple[SeriesChange, ...]:
    worse = not series.metric.startswith(_LOW_IS_BAD)
    return _one(decline(series, params.get("share", 0.05), higher_is_worse=worse, blocks=int(params.get("blocks", 30))))


CHANGES: Mapping[str, Callable[[Track, Mapping[str, float]], tuple[SeriesChange, ...]]] = {
    "slower": _slower,
    "decline": _decline,
    "drop": lambda series, params: throughput_drop(series, params.get("share", 0.7), int(params.get("logged", 3))),
    "broken": _broken,
    "not_finite": _not_finite,
    "jump": _jump,
    "growth": lambda series, params: _one(
        memory_growth(series, params.get("a_step", 50e6), int(params.get("window", 40)))
    ),
    "off_schedule": lambda series, params: _one(off_schedule(series, int(params.get("steps", 30)))),
}


# not numpy's: this runs for each value, over a few numbers
_USUAL: Mapping[str, Callable[[Sequence[float]], float]] = {
    "mean": lambda past: sum(past) / len(past),
    "median": median,
    "max": max,
}


def _level(test: SeriesTest, series: Track) -> tuple[SeriesChange, ...]:
    """Return the first run of points above or below the limit that is long enough."""
    usable = np.flatnonzero(np.isfinite(series.values) & ~series.skip)
    steps, times = series.steps[usable], series.times[usable]
    every = int(np.median(np.diff(steps))) if usable.size > 1 else 1  # a point represents the steps up to the next one
    past: list[float] = []
    begun: int | None = None
    for at, value in enumerate(series.values[usable].tolist()):
        limit = _limit(test, past)
        if limit is None or not (value > limit if test.above is not None else value < limit):
            past = [*past[-PAST + 1 :], value]
            begun = None
            continue
        begun = at if begun is None else begun
        long = at - begun + 1 >= test.points and steps[at] - steps[begun] + every >= test.steps
        lasts = not test.seconds or bool(times[at] - times[begun] >= test.seconds)  # false if a time is unknown
        if long and lasts and (at == usable.size - 1 or not test.at_end):
            way = "above" if test.above is not None else "below"
            told = "" if test.of == "value" else f", which is {test.above or test.below:g} of its {test.of}"
            text = f"{series.metric} is {value:.4g}, {way} {limit:.4g}{told}, from step {int(steps[begun])} on"
            level = float(np.median(past)) if past else limit
            since = float(times[begun])
            return (
                SeriesChange(
                    series.metric,
                    way,
                    int(steps[begun]),
                    int(steps[at]),
                    level,
                    value,
                    value / level - 1 if level else 0.0,
                    time=since if math.isfinite(since) else None,
                    text=text,
                ),
            )
    return ()


def _limit(test: SeriesTest, past: Sequence[float]) -> float | None:
    """Return the limit for a value; None while there is too little data for it."""
    number = test.above if test.above is not None else test.below
    if number is None or test.of == "value":
        return number
    if len(past) < LEAST_PAST:
        return None
    return number * _USUAL[test.of](past)


def _spot(line: _Line, change: SeriesChange, *, alone: bool) -> Spot:
    point = line.points.get(change.since) or line.points.get(change.found)
    captures = {
        "metric": change.metric,
        "value": f"{change.after:.4g}",
        "level": f"{change.before:.4g}",
        "since": str(change.since),
        "who": line.name,
    }
    text = f"{line.name}: {change.text}" if alone or line.stream is None else change.text
    who = line.who if alone or line.stream is None else Resource()
    step = change.since if point is not None else None
    time = point.time if point is not None and point.time is not None else change.time
    return Spot(line.stream, point.offset if point is not None else 0, step, time, text, captures, who)
