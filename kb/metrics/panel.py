"""One metric as an array of rows (ranks, GPUs, ports or nodes) by time, with a mask.

Input points may be unsorted and duplicated, with holes and counter resets. A cell without a measurement is unknown (NaN
and not in the mask), never 0. Column times are multiples of the step, so panels of parts of a job can be merged in any
order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kb.model import Gap, Resource
from kb.parsers.artefacts.promql.series import MetricSeries

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

MOST_CELLS = 40_000_000
MOST_COLUMNS = 50_000
MOST_ROWS = 100_000
LONGEST_SPAN = 15 * 86400.0  # seconds from the median time; points farther away belong to another run, or are broken
LATEST = 1e12  # later than any real timestamp
LARGEST = 1e100  # larger than any real measurement
LONGEST_HOLE = 3.5  # multiples of the usual scrape interval; over a longer hole a counter's rate is unknown


@dataclass(frozen=True, slots=True)
class Row:
    """What a row measures; `part` distinguishes ports or states of one resource."""

    resource: Resource
    part: str = ""

    @property
    def name(self) -> str:
        """Rank, node, GPU and part, as far as they are known."""
        resource = self.resource
        words = [resource.node or resource.container or "" if resource.rank is None else f"rank {resource.rank}"]
        if resource.rank is None and resource.gpu is not None:
            words.append(f"GPU {resource.gpu}")
        return " ".join([word for word in [*words, self.part] if word]) or "unnamed"


@dataclass(frozen=True, slots=True, eq=False)
class Panel:
    """`values` is rows x columns, NaN where `mask` is False; column c covers [start + c * step, start + (c + 1) * step).

    Times are seconds since the epoch. The arrays are read-only.
    """

    metric: str
    rows: tuple[Row, ...]
    start: float
    step: float
    values: Floats
    mask: Bools
    unit: str = ""

    @property
    def times(self) -> Floats:
        """The start time of each column."""
        return np.asarray(self.start + self.step * np.arange(self.values.shape[1]), dtype=np.float64)


def make_panel(  # noqa: PLR0917 - a panel is just these
    metric: str, rows: Sequence[Row], start: float, step: float, values: Floats, unit: str = ""
) -> Panel:
    """Return a panel of an array: a row per series, a column per `step` seconds from `start` (Unix time).

    Values that are not finite are unknown.

    Raises:
        ValueError: the array does not have one row for each of `rows`, or `step` is not positive.
    """
    if values.ndim != 2 or values.shape[0] != len(rows) or not step > 0:
        raise ValueError(f"{len(rows)} rows and an array of shape {values.shape}, step {step}")
    mask = np.abs(values) < LARGEST
    kept = np.where(mask, values, np.nan).astype(np.float64)
    kept.setflags(write=False)
    mask.setflags(write=False)
    return Panel(metric, tuple(rows), float(start), float(step), kept, mask, unit)


def panels_of(
    series: Iterable[MetricSeries], step: float | None = None, start: float | None = None, end: float | None = None
) -> tuple[dict[str, Panel], tuple[Gap, ...]]:
    """Return metric → its panel, and the gaps. `step` (seconds), `start` and `end` (Unix times): as for `panel_of`."""
    metrics: dict[str, list[MetricSeries]] = {}
    for series_item in series:
        metrics.setdefault(series_item.metric, []).append(series_item)
    made: dict[str, Panel] = {}
    gaps: list[Gap] = []
    for metric, members in sorted(metrics.items()):
        panel, odd = panel_of(members, step, start, end)
        gaps += odd
        if panel is not None:
            made[metric] = panel
    return made, tuple(gaps)


def panel_of(
    series: Sequence[MetricSeries], step: float | None = None, start: float | None = None, end: float | None = None
) -> tuple[Panel | None, tuple[Gap, ...]]:
    """Return the panel of one metric's series: counters as rates, cells as means of points; None if nothing is known.

    `step` (seconds) is raised to the usual scrape interval, and further if the array would be too large. Of several
    points with the same timestamp the largest counts. `start`, `end`: Unix times that bound the points.

    Raises:
        ValueError: the series belong to different metrics.
    """
    if len({series_item.metric for series_item in series}) > 1:
        raise ValueError("a panel holds one metric")
    if not series:
        return None, ()
    gaps: list[Gap] = []
    points, cadences = _points(series, start, end, gaps)
    if not points:
        gaps.append(Gap("metric_empty", series[0].source, f"{series[0].metric} has no point in the window"))
        return None, tuple(gaps)
    usual = float(np.median(cadences)) if cadences else 0.0
    wide = _width(step, usual)
    first = min(float(times[0]) for rows in points.values() for times, _ in rows)
    last = max(float(times[-1]) for rows in points.values() for times, _ in rows)
    fitted = wide
    while (last - first) / fitted + 2 > min(MOST_COLUMNS, MOST_CELLS / len(points)):
        fitted *= 2
    if fitted > wide:
        reason = f"{series[0].metric}: too many cells; the step is {fitted:g} s, not {wide:g} s"
        gaps.append(Gap("metric_coarse", series[0].source, reason))
    rows = sorted(points, key=_key)
    origin = math.floor(first / fitted)
    values = np.full((len(rows), math.floor(last / fitted) - origin + 1), np.nan)
    for at, row in enumerate(rows):
        _fill(values[at], points[row], fitted, origin)
    return make_panel(series[0].metric, rows, origin * fitted, fitted, values, series[0].unit), tuple(gaps)


def _width(step: float | None, usual: float) -> float:
    if step is not None and math.isfinite(step) and step > 0:
        return max(step, float(math.floor(usual)))
    return max(1.0, float(round(usual))) if usual else 15.0


def _points(
    series: Sequence[MetricSeries], start: float | None, end: float | None, gaps: list[Gap]
) -> tuple[dict[Row, list[tuple[Floats, Floats]]], list[float]]:
    """Return each row's points in the window, sorted, counters as rates; and the scrape interval of each series."""
    ordered = [_sorted(series_item.times, series_item.values) for series_item in series]
    middle = float(np.median([float(np.median(times)) for times, _ in ordered if times.size] or [0.0]))
    low = max(middle - LONGEST_SPAN, start if start is not None else -math.inf)
    high = min(middle + LONGEST_SPAN, end if end is not None else math.inf)
    points: dict[Row, list[tuple[Floats, Floats]]] = {}
    cadences: list[float] = []
    far = left_out = 0
    for item, (at, what) in zip(series, ordered, strict=True):
        far += int(np.count_nonzero(np.abs(at - middle) > LONGEST_SPAN))
        if at.size >= 2:
            cadences.append(float(np.median(np.diff(at))))
        times, values = rates(at, what) if item.counter else (at, what)
        inside = (times >= low) & (times < high)
        row = _row(item)
        if not inside.any():
            continue
        if row not in points and len(points) >= MOST_ROWS:
            left_out += 1
            continue
        points.setdefault(row, []).append((times[inside], values[inside]))
    source = series[0].source
    if far:
        gaps.append(Gap("metric_times", source, f"{series[0].metric}: skipped {far} points of another time"))
    if left_out:
        gaps.append(Gap("metric_series_left_out", source, f"{series[0].metric}: {left_out} series too many"))
    return points, cadences


def _row(metric_series: MetricSeries) -> Row:
    """Drop the pod if node and GPU are known: an exporter repeats a GPU once for each of its jobs."""
    known = metric_series.resource.node is not None and metric_series.resource.gpu is not None
    return Row(replace(metric_series.resource, container=None) if known else metric_series.resource, metric_series.part)


def _key(row: Row) -> tuple[object, ...]:
    resource = row.resource
    gpu = resource.gpu or ""
    rank = -1 if resource.rank is None else resource.rank
    return (
        rank,
        resource.cluster or "",
        resource.node or "",
        len(gpu),
        gpu,
        resource.container or "",
        row.part,
        str(resource.local_rank),
    )


def _sorted(times: Sequence[float] | Floats, values: Sequence[float] | Floats) -> tuple[Floats, Floats]:
    """Return the finite points by time; of several with the same timestamp the largest."""
    length = min(len(times), len(values))
    at = np.asarray(times, dtype=np.float64)[:length]
    what = np.asarray(values, dtype=np.float64)[:length]
    at = np.asarray(np.round(np.clip(at, -LATEST, LATEST), 3), dtype=np.float64)  # times closer than this are equal
    finite = np.isfinite(at) & (np.abs(what) < LARGEST)  # also false for NaN
    at, what = at[finite], what[finite]
    order = np.lexsort((what, at))
    at, what = at[order], what[order]
    last = np.append(at[1:] != at[:-1], True) if at.size else np.zeros(0, dtype=bool)
    return at[last], what[last]


def rates(times: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Return a counter's increase per second at each point after the first. Times are sorted and distinct.

    A counter that falls was reset to 0. A hole of several scrape intervals has no rate: it is unknown when in it the
    increase happened.
    """
    if times.size < 2:
        return times[:0], values[:0]
    apart, rise = np.diff(times), np.diff(values)
    rise = np.where(rise < 0, values[1:], rise)
    known = (apart <= LONGEST_HOLE * np.median(apart)) & (values[1:] >= 0) & (values[:-1] >= 0)
    return times[1:][known], (rise / apart)[known]


def _fill(cells: Floats, parts: Sequence[tuple[Floats, Floats]], step: float, origin: int) -> None:
    """Fill a row's cells with the means of their points."""
    times, values = _sorted(np.concatenate([t for t, _ in parts]), np.concatenate([v for _, v in parts]))
    index = np.floor(times / step).astype(np.int64) - origin
    count = np.bincount(index, minlength=cells.size)
    total = np.bincount(index, weights=values, minlength=cells.size)
    known = count > 0
    cells[known] = total[known] / count[known]


def resampled(panel: Panel, step: float) -> Panel:
    """Return the panel with wider cells, each the mean of the known cells that begin in it.

    Raises ValueError for a smaller step.
    """
    if step < panel.step:
        raise ValueError(f"a step of {step} s is finer than {panel.step} s")
    if step == panel.step or not panel.values.shape[1]:
        return panel
    index = np.floor(panel.times / step + 1e-9).astype(np.int64)
    origin = int(index[0])
    edges = np.flatnonzero(np.append(True, np.diff(index) > 0))
    total = np.add.reduceat(np.where(panel.mask, panel.values, 0.0), edges, axis=1)
    count = np.add.reduceat(panel.mask.astype(np.int64), edges, axis=1)
    values = np.full((len(panel.rows), int(index[-1]) - origin + 1), np.nan)
    where = index[edges] - origin
    values[:, where] = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return make_panel(panel.metric, panel.rows, origin * step, step, values, panel.unit)


def merge(item: Panel, other: Panel) -> Panel:
    """Merge two panels on the coarser of the two grids; if both have a value for a cell, the larger counts.

    For panels of the same step the order of merging does not matter.

    Raises:
        ValueError: metric or unit differ, or the times are so far apart that the array would be too large.
    """
    if (item.metric, item.unit) != (other.metric, other.unit):
        raise ValueError(f"{item.metric} in {item.unit!r} and {other.metric} in {other.unit!r} are not one panel")
    step = max(item.step, other.step)
    parts = [resampled(item, step), resampled(other, step)]
    origins = [round(part.start / step) for part in parts]
    start = min(origins)
    end = max(origin + part.values.shape[1] for origin, part in zip(origins, parts, strict=True))
    rows = sorted({row for part in parts for row in part.rows}, key=_key)
    if (end - start) * len(rows) > 2 * MOST_CELLS:
        raise ValueError("the panels are too far apart to be one")
    place = {row: at for at, row in enumerate(rows)}
    values = np.full((len(rows), end - start), np.nan)
    for origin, part in zip(origins, parts, strict=True):
        at = np.array([place[row] for row in part.rows], dtype=np.int64)
        columns = slice(origin - start, origin - start + part.values.shape[1])
        values[at, columns] = np.fmax(values[at, columns], part.values)
    return make_panel(item.metric, rows, start * step, step, values, item.unit)


def last_at_usual(panel: Panel, share: float = 0.5, least: float = 1e6) -> float | None:
    """Return the newest time at which the median row reached a share of its usual level; None if that level is too low.

    The usual level is what the median row exceeds in a quarter of the columns; below `least` it means nothing.
    """
    known = panel.mask.any(axis=0)
    if not known.any():
        return None
    middle = np.nanmedian(np.where(panel.mask, panel.values, np.nan)[:, known], axis=0)
    usual = float(np.quantile(middle, 0.75))
    there = np.flatnonzero(middle >= share * usual)
    return float(panel.times[known][there[-1]]) if usual >= least and there.size else None
