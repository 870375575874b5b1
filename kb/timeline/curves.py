"""Curves of an incident as values: the measurements of all nodes, overlaid, with the point of failure.

The size is bounded for any job and run: a curve has at most `COLUMNS` values, similar nodes become a median with a band
around it, and only nodes at fault and outliers keep a line of their own.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from kb.facts.evidence import Evidence
from kb.facts.gpu_ranks import with_gpus, with_ranks
from kb.metrics.panel import Bools, Floats, Panel
from kb.model import NOT_FAILED, Resource
from kb.report import Report, Suspect
from kb.timeline.onset import first_apart, first_step_apart, late_level, shares
from kb.timeline.per_step import binned, by_step, points_by_origin, rank_order, usual_by_step, values_of
from kb.timeline.rows import cleaned

COLUMNS = 120
LINES = 24  # lines shown in one chart without median and band
NAMED = 16  # suspects' own rows, kept separate from their nodes' means
OWN = 6  # maximum number of outlying lines; with more, none is one
METRICS = 6  # charts of metrics
APART = 6.0  # robust deviations from the median, over the last part of the chart
LATE = 0.2  # share of the chart that is its last part
LEAST = 3  # minimum number of rows for a median
POINTS = 3  # minimum number of values for a curve
SAME = 1e-6  # share of a value up to which another one is the same
NAME = 40  # characters

Axis = Literal["step", "time"]

_MEASURED: Mapping[str, tuple[str, str]] = {
    "loss": ("Loss", ""),
    "throughput": ("Logged throughput", ""),
    "seconds": ("Step time", "s"),
    "memory": ("Memory", "bytes"),
    "grad_norm": ("Gradient norm", ""),
    "compute": ("Own work in a step", "s"),
    "data": ("Wait for data in a step", "s"),
}
_NAMES = {"gpu": "GPU", "sm": "SM", "cpu": "CPU", "nvlink": "NVLink", "pcie": "PCIe", "rdma": "RDMA", "pfc": "PFC", "io": "I/O", "temp": "temperature", "util": "utilisation", "tx": "sent", "rx": "received"}  # fmt: skip
_OF_RUN = ("loss", "throughput", "seconds", "grad_norm")  # the same for all ranks: often one of them prints them
_DULL = ("memory", "data")  # tell nothing where they never change
_USUAL = ("gpu_util", "gpu_power", "gpu_memory", "gpu_temp", "rdma_tx", "host_memory")  # if no metric stands out


@dataclass(frozen=True, slots=True)
class CurveLine:
    """One row of a chart: one value per column, None if nothing was measured. `why`: suspect, apart, or empty.

    `broken`: columns in which the value was not finite.
    """

    label: str
    values: tuple[float | None, ...]
    why: str = ""
    broken: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Chart:
    """One quantity over steps or time. Column c ranges from `start + c * width` to the start of the next.

    A value lies in the middle of its column: with a column per step, `start` is half a step before the first one. Times
    are seconds since the epoch.

    `lines`: outlying ones first; `median`: of all `rows`, if there are enough; `low`, `high`: the limits within which 90 % of
    those lie that do not stand out; `at`: the failing step,
    the step from which a suspect left the others, or the time at which the failure first showed.
    """

    metric: str
    title: str
    unit: str
    axis: Axis
    start: float
    width: float
    rows: int
    lines: tuple[CurveLine, ...] = ()
    median: tuple[float | None, ...] = ()
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()
    at: float | None = None


@dataclass(frozen=True, slots=True)
class Curves:
    """The charts of an incident: from its logs first, then its metrics, those with outliers first."""

    charts: tuple[Chart, ...] = ()


@dataclass(frozen=True, slots=True)
class _Row:
    """One row under construction: its resource, a value per column (NaN for none), columns with non-finite values.

    `of_run`: the values are those of the whole run, which this resource printed.
    """

    who: Resource
    values: Floats
    broken: frozenset[int] = frozenset()
    of_run: bool = False

    @property
    def label(self) -> str:
        if self.of_run:
            return "the run" if self.who.rank is None else f"the run, as logged by rank {self.who.rank}"
        words = [] if self.who.rank is None else [f"rank {self.who.rank}"]
        words += [self.who.node or self.who.container or ""] if self.who.rank is None else []
        words += [f"GPU {self.who.gpu}"] if self.who.gpu is not None and self.who.rank is None else []
        return cleaned(" ".join(word for word in words if word) or "the run", NAME)


def curves(evidence: Evidence, report: Report, *, lines: int = LINES, columns: int = COLUMNS) -> Curves:
    """Return the curves of a diagnosed job. `lines`: the most lines per chart; `columns`: the most values per line."""
    told = report.diagnoses[0].suspects if report.diagnoses else ()
    suspects = with_ranks(told, evidence)
    logged = [chart for chart in _logged(evidence, report, suspects, lines, columns) if chart is not None]
    since = report.diagnoses[0].first_seen if report.diagnoses else None
    if report.phase == "degraded" and logged and any(suspect.rank is not None for suspect in suspects):
        logged.sort(key=_by_suspect)
        left = _onset(logged[0], evidence)
        logged = [replace(chart, at=left) if chart.at is None else chart for chart in logged]
        since = _time_of(left, evidence) if since is None and left is not None else since
    measured = _measured(evidence, report, told, lines, columns, at=since)
    return Curves((*logged, *measured))


def _time_of(step: float, evidence: Evidence) -> float | None:
    """Return when the run reached a step, for the charts over time; None if no line of it or after it has a time."""
    every = (point for points in points_by_origin(evidence).values() for point in points)
    return min(
        (point.time for point in every if point.time is not None and point.step is not None and point.step >= step),
        default=None,
    )


def _by_suspect(chart: Chart) -> tuple[bool, float]:
    """Return the key that puts charts in which the suspect differs most from the others first, those without it last."""
    line = next((line for line in chart.lines if line.why == "suspect"), None)
    return (line is None, 0.0 if line is None else -abs(late_level(shares(line.values, chart.median))))


def _onset(chart: Chart, evidence: Evidence) -> float | None:
    """Return the step from which the first suspect is apart from the median; None if always, never or unknown."""
    line = next((line for line in chart.lines if line.why == "suspect"), None)
    apart = [] if line is None else shares(line.values, chart.median)
    column = first_apart(apart)
    if line is None or column is None:
        return None
    progress = points_by_origin(evidence)
    who = next((item for item in progress if _Row(item, np.empty(0)).label == line.label), Resource())
    steps = by_step(progress.get(who, ()), usual_by_step(progress, chart.metric), chart.metric)
    found = first_step_apart(steps, late_level(apart), chart.start + (column - 1) * chart.width, chart.width)
    return float(math.ceil(chart.start + column * chart.width)) if found is None else float(found)


# -- from logs ---------------------------------------------------------------------------------------------------------


def _logged(
    evidence: Evidence, report: Report, suspects: Sequence[Suspect], lines: int, columns: int
) -> Iterator[Chart | None]:
    """Yield a chart over steps for each quantity in iteration lines."""
    progress = points_by_origin(evidence)
    failing = _failing(report)
    for metric, (title, unit) in _MEASURED.items():
        steps: dict[Resource, list[tuple[int, float]]] = {}
        for who, points in progress.items():
            if found := values_of(points, metric):
                steps[who] = found
        seen = [step for found in steps.values() for step, _ in found]
        if len(seen) < POINTS or min(seen) == max(seen):
            continue
        start, end = min(seen), max(*seen, failing or 0)
        width = max(1.0, (end + 1 - start) / columns)
        count = math.ceil((end + 1 - start) / width)
        rows = [_Row(who, *binned(found, start, width, count)) for who, found in sorted(steps.items(), key=rank_order)]
        if metric in _OF_RUN and len(rows) == 1 and not _is_suspect(rows[0].who, suspects):
            rows = [replace(rows[0], of_run=True)]
        yield _chart(rows, suspects, lines, metric, title, unit, "step", start - 0.5, width, failing)


def _failing(report: Report) -> int | None:
    """Return the step of the failure, as far as known; None if nothing failed, or if it continues at a worse pace."""
    if report.verdict in NOT_FAILED and not (report.hang.called or report.hang.suspected):
        return None
    first = report.diagnoses[0].iteration if report.diagnoses else None
    if report.phase == "degraded":
        return None if first == report.progress.last_iteration else first
    return report.progress.last_iteration if first is None else first


# -- from metrics ------------------------------------------------------------------------------------------------------


def _measured(
    evidence: Evidence, report: Report, told: Sequence[Suspect], lines: int, columns: int, *, at: float | None
) -> list[Chart]:
    """Return the charts of the most relevant metrics: those in the report, those with outliers, the usual ones.

    `at`: when the failure first showed.
    """
    report_text = " ".join(
        item.text for diagnosis in report.diagnoses for item in diagnosis.evidence if item.kind == "series"
    )
    found: list[tuple[tuple[int, float], Chart]] = []
    for name, panel in sorted(evidence.panels.items()):
        suspects = with_gpus(told, panel, evidence.job.nodes)
        rows = list(_rows(panel, columns, evidence.job.nodes, suspects))
        if not rows:
            continue
        width = panel.step * max(1, math.ceil(panel.values.shape[1] / columns))
        start = panel.start - panel.step / 2
        end = start + width * rows[0].values.size
        chart = _chart(
            rows, suspects, lines, name, _titled(name), panel.unit, "time", start, width,
            at if at is not None and start <= at <= end else None,
        )  # fmt: skip
        if chart is None:
            continue
        far = max(
            (entry for row, entry in zip(rows, _far(rows), strict=True) if _is_suspect(row.who, suspects)), default=0.0
        )
        odd = any(line.why for line in chart.lines)
        weight = 4 if name in report_text else 3 if odd and far >= APART else 2 if odd else 1 if name in _USUAL else 0
        if weight:
            found.append(((-weight, -far), chart))
    found.sort(key=lambda entry: (entry[0], entry[1].metric))
    return [chart for _, chart in found[:METRICS]]


def _titled(metric: str) -> str:
    """Return a metric's name for people."""
    words = " ".join(_NAMES.get(word, word) for word in metric.split("_"))
    return words[:1].upper() + words[1:]


def _rows(
    panel: Panel, columns: int, nodes: Mapping[str, Sequence[int]], suspects: Sequence[Suspect]
) -> Iterator[_Row]:
    """Yield the rows of a panel with fewer columns. If there are many, nodes become means, except suspects."""
    of_rank = {rank: node for node, ranks in nodes.items() for rank in ranks}
    each = max(1, math.ceil(panel.values.shape[1] / columns))
    groups: dict[Resource, list[int]] = {}
    many, apart = len(panel.rows) > 4 * LINES, 0
    for at, row in enumerate(panel.rows):
        resource = row.resource
        node = resource.node or (of_rank.get(resource.rank) if resource.rank is not None else None)
        who = Resource(node=node, container=resource.container, rank=resource.rank, gpu=resource.gpu)
        if many and node is not None:
            own = (
                (resource.rank is not None or resource.gpu is not None)
                and apart < NAMED
                and _is_suspect(who, suspects, own=True)
            )
            apart += own
            who = who if own else Resource(node=node, container=resource.container)
        groups.setdefault(who, []).append(at)
    for who, members in sorted(
        groups.items(), key=lambda group: (*rank_order(group), group[0].gpu or "", group[0].container or "")
    ):
        yield _Row(who, _narrowed(panel.values[members], panel.mask[members], each))


def _narrowed(values: Floats, mask: Bools, each: int) -> Floats:
    """Return the mean of several rows, with columns combined."""
    count = math.ceil(values.shape[1] / each)
    room = count * each - values.shape[1]
    wide = np.pad(np.where(mask, values, 0.0), ((0, 0), (0, room))).reshape(values.shape[0], count, each)
    known = np.pad(mask, ((0, 0), (0, room))).reshape(values.shape[0], count, each).sum(axis=(0, 2))
    made = np.full(count, np.nan)
    np.divide(wide.sum(axis=(0, 2)), known, out=made, where=known > 0)
    return made


# -- one chart -----------------------------------------------------------------------------------------------------------


def _chart(  # noqa: PLR0917 - what a chart is made of
    rows: Sequence[_Row],
    suspects: Sequence[Suspect],
    lines: int,
    metric: str,
    title: str,
    unit: str,
    axis: Axis,
    start: float,
    width: float,
    at: float | None,
) -> Chart | None:
    """Return the rows as a chart; None if no row has enough values."""
    kept = [row for row in rows if np.isfinite(row.values).sum() + len(row.broken) >= min(POINTS, row.values.size)]
    if not kept or (metric in _DULL and _is_flat(kept)):
        return None
    odd = _standing_out(kept, suspects)
    rest = [index for index in range(len(kept)) if index not in odd]
    shown = [*odd, *(rest if len(kept) <= lines else [])]
    others = [kept[index].values for index in rest]
    low, high = _band(others if len(others) >= LEAST else [row.values for row in kept])
    return Chart(
        metric=cleaned(metric, NAME),
        title=cleaned(title, NAME),
        unit=cleaned(unit, NAME),
        axis=axis,
        start=start,
        width=width,
        rows=len(kept),
        lines=tuple(_line(kept[index], odd.get(index, "")) for index in shown),
        median=_rounded(_middle(np.stack([row.values for row in kept]), axis=0)) if len(kept) >= LEAST else (),
        low=low if len(kept) >= LEAST else (),
        high=high if len(kept) >= LEAST else (),
        at=at,
    )


def _is_flat(rows: Sequence[_Row]) -> bool:
    """Whether all values of all rows are the same."""
    values = np.concatenate([row.values[np.isfinite(row.values)] for row in rows])
    return not any(row.broken for row in rows) and bool(np.ptp(values) <= SAME * np.abs(values).max())


def _line(row: _Row, why: str) -> CurveLine:
    return CurveLine(row.label, _rounded(row.values), why, tuple(sorted(row.broken)))


def _rounded(values: Floats) -> tuple[float | None, ...]:
    """Return the values with four significant digits, None for missing ones."""
    return tuple(float(f"{value:.4g}") if math.isfinite(value) else None for value in values.tolist())


def _standing_out(rows: Sequence[_Row], suspects: Sequence[Suspect]) -> dict[int, str]:
    """Return row index → why it stands out, the suspects first; empty if most rows do."""
    named = [index for index, row in enumerate(rows) if _is_suspect(row.who, suspects)]
    exact = [index for index in named if rows[index].who.rank is not None or rows[index].who.gpu is not None]
    named = exact or named  # the rank itself, not also its node
    found = dict.fromkeys(named if 2 * len(named) <= len(rows) else (), "suspect")
    far = sorted(((distance, index) for index, distance in enumerate(_far(rows)) if index not in found), reverse=True)
    apart = [index for distance, index in far if distance >= APART]
    if len(apart) <= max(1, len(rows) // 5):
        found.update(dict.fromkeys(apart, "apart"))
    return dict(list(found.items())[:OWN])


def _is_suspect(who: Resource, suspects: Iterable[Suspect], *, own: bool = False) -> bool:
    """Whether a row is a suspect's; `own`: the rank or GPU itself, not its whole node."""
    for suspect in suspects:
        if suspect.rank is not None and who.rank is not None:
            if suspect.rank == who.rank:
                return True
        elif suspect.node and who.node == suspect.node:
            index = None if suspect.gpu is None or suspect.gpu.index is None else str(suspect.gpu.index)
            if (index is not None and who.gpu == index) if own else (index is None or who.gpu in (None, index)):
                return True
    return False


def _far(rows: Sequence[_Row]) -> list[float]:
    """Return each row's distance from the overall median in the last part of the chart, in robust deviations."""
    last = max(1, round(LATE * rows[0].values.size))
    levels = _middle(np.stack([row.values[-last:] for row in rows]), axis=1)
    known = levels[np.isfinite(levels)]
    if known.size <= LEAST:
        return [0.0] * len(rows)
    middle = float(np.median(known))
    usual = 1.4826 * float(np.median(np.abs(known - middle)))
    distances = np.abs(levels - middle) / max(usual, 0.02 * abs(middle), 1e-12)
    return [float(item) for item in np.nan_to_num(distances)]


def _middle(values: Floats, axis: int) -> Floats:
    """Return the median of the known values; NaN if there are none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # rows without any value
        return np.asarray(np.nanmedian(values, axis=axis), dtype=np.float64)


def _band(rows: Sequence[Floats]) -> tuple[tuple[float | None, ...], tuple[float | None, ...]]:
    """Return the limits within which 90 % of the rows lie."""
    every = np.stack(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        low, high = np.nanpercentile(every, [5.0, 95.0], axis=0)
    return _rounded(low), _rounded(high)
