"""Compares ranks and nodes with the median of their group: which row is an outlier, in which metric, since when.

A row is an outlier if its deviation from the group's median leaves both the row's own past range and the range of the
other rows, for several minutes in a row. So machines that differ by design, phases that all ranks enter, and
short-lived stragglers are not reported. A missing measurement never counts as 0.

The deviation is log((value + a) / (median + a)), where a is an insignificant amount of the metric: relative for large
values, absolute for small ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from kb.metrics.medians import known_median, noise, recent_level, smoothed
from kb.metrics.panel import Bools, Floats, Panel, Row

Direction = Literal["low", "high", "both"]


@dataclass(frozen=True, slots=True)
class ComparisonRule:
    """How a metric is compared: its bad direction, the difference to ignore (in its unit), and the relative difference that makes an outlier.

    `uneven`: machines differ by design, so a row is compared only with its own past. `loose`: phases and healthy work
    move it for minutes, so a deviation must last longer.
    """

    bad: Direction
    amount: float
    least: float
    uneven: bool = False
    loose: bool = False


COMPARISON_RULES: Mapping[str, ComparisonRule] = {
    "gpu_util": ComparisonRule("low", 10.0, 0.012),
    "sm_active": ComparisonRule("low", 5.0, 0.02),
    "tensor_active": ComparisonRule("low", 3.0, 0.02),
    "gr_active": ComparisonRule("low", 5.0, 0.012),
    "dram_active": ComparisonRule("low", 3.0, 0.03),
    "gpu_power": ComparisonRule("low", 50.0, 0.015),
    "gpu_temp": ComparisonRule("high", 20.0, 0.015, uneven=True),
    "memory_temp": ComparisonRule("high", 20.0, 0.015, uneven=True),
    "sm_clock": ComparisonRule("low", 100.0, 0.004),
    "nvlink_tx": ComparisonRule("low", 5e8, 0.02),
    "nvlink_rx": ComparisonRule("low", 5e8, 0.02),
    "nvlink_bandwidth": ComparisonRule("low", 5e8, 0.02),
    "pcie_tx": ComparisonRule("low", 1e8, 0.03),
    "pcie_rx": ComparisonRule("low", 1e8, 0.03),
    "rdma_tx": ComparisonRule("low", 2e8, 0.02),
    "rdma_rx": ComparisonRule("low", 2e8, 0.02),
    "pfc_rate": ComparisonRule("high", 50.0, 0.25, uneven=True, loose=True),
    "cpu_util": ComparisonRule("high", 3.0, 0.05, uneven=True, loose=True),
    "host_memory": ComparisonRule("high", 5.0, 0.004, uneven=True),
    "disk_wait": ComparisonRule("high", 1.0, 0.15, uneven=True, loose=True),
    "io_pressure": ComparisonRule("high", 2.0, 0.15, uneven=True, loose=True),
    "cpu_pressure": ComparisonRule("high", 2.0, 0.1, uneven=True, loose=True),
    "data_wait": ComparisonRule("high", 0.05, 0.1, loose=True),
    "run_queue_wait": ComparisonRule("high", 0.05, 0.1, loose=True),
    "step_time": ComparisonRule("high", 0.01, 0.01),
    "compute_time": ComparisonRule("high", 0.01, 0.01),
}


@dataclass(frozen=True, slots=True)
class OutlierLimits:
    """When a row counts as an outlier. Times in seconds; `z` in robust deviations, `share` of a window's cells."""

    z: float = 5.0
    standing_z: float = 8.0  # for a row without a past
    lasts: float = 300.0
    loose_lasts: float = 420.0
    share: float = 0.9
    past: float = 3600.0
    least_past: float = 600.0
    lag: float = 60.0
    every: float = 60.0
    group: int = 4
    most: float = 0.2  # of the rows; if more deviate, they are a group of their own


OUTLIER_LIMITS = OutlierLimits()


@dataclass(frozen=True, slots=True)
class Outlier:
    """An outlier in one metric. Times are seconds since the epoch.

    `size`: the deviation beyond the row's usual one, as a share of the group's median (-0.3: 30 % below); `z`: the same
    in robust deviations. `since`: when it began; `found`: when it could first be detected; `until`: when it last held.
    `standing`: an outlier since its first point, so compared only with the other rows.
    """

    metric: str
    row: Row
    since: float
    found: float
    until: float
    size: float
    z: float
    value: float
    median: float
    standing: bool = False

    @property
    def text(self) -> str:
        """One sentence for people."""
        minutes = (self.until - self.since) / 60
        way = "above" if self.value > self.median else "below"
        return (
            f"{self.row.name}: {self.metric} {self.value:.4g}, {way} the group's median {self.median:.4g}, "
            f"for {minutes:.0f} min (z {self.z:.1f})"
        )


@dataclass(frozen=True, slots=True)
class OddRow:
    """An outlier in one or more metrics, the strongest first; each further metric adds less to `score`."""

    row: Row
    since: float
    found: float
    score: float
    outliers: tuple[Outlier, ...]


def compare(
    panel: Panel, judged: ComparisonRule | None = None, limits: OutlierLimits = OUTLIER_LIMITS
) -> tuple[Outlier, ...]:
    """Return the rows that deviate from the group's median for minutes, ordered by `found`.

    An unknown metric is judged in both directions, with a hundredth of its usual level as the insignificant amount.
    """
    how = judged or COMPARISON_RULES.get(panel.metric) or _unnamed(panel)
    if panel.values.shape[0] < limits.group or not panel.mask.any():
        return ()
    check = _Check(panel, how, limits)
    found: dict[tuple[int, bool], list[Outlier]] = {}
    for end in check.ends():
        for row, standing in check.odd(end):
            before = found.setdefault((row, standing), [])
            last = before.pop() if before and check.goes_on(before[-1], end) else None
            before.append(check.outlier(row, end, last, standing=standing))
    return tuple(
        sorted(
            (item for several in found.values() for item in several),
            key=lambda item: (item.found, -abs(item.z), item.row.name),
        )
    )


def _unnamed(panel: Panel) -> ComparisonRule:
    level = float(np.median(np.abs(panel.values[panel.mask]))) if panel.mask.any() else 0.0
    return ComparisonRule("both", max(0.01 * level, 1e-12), 0.03)


class _Check:
    """One prepared panel: deviations smoothed over five cells, and the findings of each check so far."""

    def __init__(self, panel: Panel, how: ComparisonRule, limits: OutlierLimits) -> None:
        self.panel, self.how, self.limits = panel, how, limits
        level = np.maximum(panel.values, 0.0) if np.nanmin(panel.values) >= 0 else panel.values
        self.median = known_median(level, axis=0)
        self.median[panel.mask.sum(axis=0) < limits.group] = np.nan
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = (level + how.amount) / (self.median + how.amount)
            self.deviation = np.where(ratio > 0, np.log(np.where(ratio > 0, ratio, 1.0)), np.nan)
        self.smooth = smoothed(self.deviation)
        self.sign = {"low": -1.0, "high": 1.0, "both": 0.0}[how.bad]
        self.window = self._cells(limits.loose_lasts if how.loose else limits.lasts)
        self.lag, self.past = self._cells(limits.lag), self._cells(limits.past)
        self.spreads: dict[float, list[float]] = {}
        self.peak, self.healed = np.zeros((2, panel.values.shape[0]))
        self.now: dict[bool, tuple[Floats, Floats]] = {}

    def _cells(self, seconds: float) -> int:
        return max(3, math.ceil(seconds / self.panel.step - 1e-9))

    def ends(self) -> range:
        """Return the end column (exclusive) of each check."""
        every = max(1, round(self.limits.every / self.panel.step))
        last = self.panel.values.shape[1]
        first = last - (last - self.window) // every * every if last >= self.window else last + 1
        return range(first, last + 1, every)

    def goes_on(self, before: Outlier, end: int) -> bool:
        """Whether an earlier finding and a new one are the same."""
        return self.panel.start + self.panel.step * (end - self.window) <= before.until + self.limits.every

    def odd(self, end: int) -> list[tuple[int, bool]]:
        """Return the outliers in the window up to a column, and whether each is one since its first point."""
        rows = [(int(row), False) for row in self._changed(end)]
        if not self.how.uneven:
            rows += [(int(row), True) for row in self._standing(end) if (int(row), False) not in rows]
        return rows

    def _changed(self, end: int) -> NDArray[np.int64]:
        """Return the rows whose deviation left the range of their own past."""
        begin = end - self.window - self.lag
        past = self.smooth[:, max(0, begin - self.past) : max(0, begin)]
        stride = max(1, past.shape[1] // 60)
        known = np.isfinite(past).sum(axis=1) * self.panel.step
        past = past[:, ::stride]
        usual = known_median(past, axis=1)
        usual[known < self.limits.least_past] = np.nan
        own = 1.4826 * noise(past)
        left = self.smooth[:, end - self.window : end] - usual[:, None]
        level = recent_level(left)
        scale = self._scale(level, 0.5 * own, self.how.least)
        odd = self._far(left, level, scale, self.limits.z)
        odd &= ~(np.abs(level) < 1.2 * self._healed(level))
        odd &= ~self._comes_and_goes(end, usual, level, own)
        self.now[False] = (level, scale)
        return self._few(odd)

    def _comes_and_goes(self, end: int, usual: Floats, level: Floats, own: Floats) -> Bools:
        """Return the rows that were back at their usual level within the window, as far as their noise allows."""
        raw = (self.deviation[:, end - self.window : end] - usual[:, None]) * self._way(level)[:, None]
        with np.errstate(invalid="ignore"):
            back = (raw < 0.4 * np.abs(level)[:, None]).sum(axis=1)
            clear = np.abs(level) >= 5.0 * own
        goes: Bools = clear & (back > (1.0 - self.limits.share) * np.isfinite(raw).sum(axis=1))
        return goes

    def _healed(self, level: Floats) -> Floats:
        """Return the largest deviation from which each row has recovered so far."""
        off = np.fmax(0.0, level * self._way(level))
        back = off < 0.5 * self.peak
        self.healed[back] = np.maximum(self.healed, self.peak)[back]
        self.peak = np.where(back, off, np.maximum(self.peak, off))
        return self.healed

    def _standing(self, end: int) -> NDArray[np.int64]:
        """Return the rows that deviate from the others since their first point, for at least the length of a past."""
        length = max(self.window, self._cells(self.limits.least_past))
        if end < length:
            return np.zeros(0, dtype=np.int64)
        span = self.smooth[:, max(0, end - 2 * length) : end]
        level = recent_level(span)
        first = known_median(self.smooth[:, :length], axis=1)
        scale = self._scale(level, np.zeros_like(level), 2 * self.how.least)
        odd = self._far(span, level, scale, self.limits.standing_z)
        odd &= np.abs(first) > 0.5 * np.abs(level)
        self.now[True] = (level, scale)
        return self._few(odd)

    def _scale(self, level: Floats, own: Floats, least: float) -> Floats:
        """Return the allowed deviation, from the spread of the others, the row's own noise and a minimum."""
        known = np.isfinite(level)
        if known.sum() < self.limits.group:
            return np.full_like(level, np.nan)
        now = 1.4826 * float(np.median(np.abs(level[known] - np.median(level[known]))))
        spreads = self.spreads.setdefault(least, [])
        spreads.append(now)
        usual = float(np.median(spreads[-60:]))  # the spread of a few rows at one time may be small by chance
        few = 1.0 + 2.0 / known.sum()
        scale: Floats = np.fmax(np.fmax(own, few * max(now, usual)), least)
        return scale

    def _way(self, level: Floats) -> Floats:
        """Return the sign of the bad direction; if both are bad, the sign of the deviation."""
        return np.full_like(level, self.sign) if self.sign else np.sign(level)

    def _far(self, cells: Floats, level: Floats, scale: Floats, z: float) -> Bools:
        known = np.isfinite(cells)
        way = self._way(level)
        with np.errstate(invalid="ignore"):
            beyond = (cells * way[:, None] >= 0.5 * z * scale[:, None]).sum(axis=1)
            far: Bools = level * way >= z * scale
        count = known.sum(axis=1)
        far &= (count >= 0.6 * cells.shape[1]) & (beyond >= self.limits.share * count)
        return far

    def _few(self, odd: Bools) -> NDArray[np.int64]:
        rows = np.flatnonzero(odd)
        return rows if rows.size <= max(1, self.limits.most * odd.size) else rows[:0]

    def outlier(self, row: int, end: int, before: Outlier | None, *, standing: bool) -> Outlier:
        """Return the finding for an outlier; a row that was reported before keeps its start."""
        panel, (level, scale) = self.panel, self.now[standing]
        span = slice(end - self.window, end)
        value = float(known_median(panel.values[row : row + 1, span], axis=1)[0])
        median = float(known_median(self.median[None, span], axis=1)[0])
        since = before.since if before else panel.start + panel.step * self._began(row, end, level[row], standing)
        z = float(level[row] / scale[row])
        if before and abs(before.z) >= abs(z):
            z, value, median = before.z, before.value, before.median
        size = math.expm1(min(float(level[row]), 700.0)) if not before or z != before.z else before.size
        now = panel.start + panel.step * end
        return Outlier(
            panel.metric, panel.rows[row], since, before.found if before else now, now, size, z, value, median, standing
        )

    def _began(self, row: int, end: int, level: float, standing: bool) -> int:
        """Return the first column from which on the deviation is at least half its size."""
        if standing:
            return int(np.argmax(self.panel.mask[row]))
        begin = end - self.window - self.lag
        usual = float(known_median(self.smooth[row : row + 1, max(0, begin - self.past) : begin], axis=1)[0])
        cells = (self.smooth[row, :end] - usual) * math.copysign(1.0, level)
        back = np.flatnonzero(cells < 0.5 * abs(level))
        back = back[back < end - self.window // 2]
        return max(0, int(back[-1]) - 1) if back.size else 0  # the running median lags by two cells


def odd_rows(panels: Sequence[Panel], limits: OutlierLimits = OUTLIER_LIMITS) -> tuple[OddRow, ...]:
    """Return outliers in any metric, and rows whose telemetry stopped completely; the strongest first."""
    members: dict[Row, list[Outlier]] = {}
    for panel in panels:
        for item in compare(panel, None, limits):
            members.setdefault(item.row, []).append(item)
    for outlier in vanished(panels, limits):
        members.setdefault(outlier.row, []).append(outlier)
    found = []
    for row, outliers in members.items():
        outliers.sort(key=lambda item: -abs(item.z))
        score = sum(abs(item.z) / 2**place for place, item in enumerate(outliers))
        found.append(
            OddRow(row, min(o.since for o in outliers), min(o.found for o in outliers), score, tuple(outliers))
        )
    return tuple(sorted(found, key=lambda group: (-group.score, group.found, group.row.name)))


def vanished(panels: Sequence[Panel], limits: OutlierLimits = OUTLIER_LIMITS) -> tuple[Outlier, ...]:
    """Return the rows whose metrics all ended minutes ago while others continue: the machine is lost, not one exporter.

    Needs two or more kinds of metric (GPU and host), since a single exporter may die.
    """
    if len({_exporter(panel.metric) for panel in panels}) < 2:
        return ()
    last: dict[Row, float] = {}
    ends: list[float] = []
    for panel in panels:
        if not panel.mask.any():
            continue
        columns = panel.values.shape[1] - 1 - np.argmax(panel.mask[:, ::-1], axis=1)
        ends.append(panel.start + panel.step * (int(columns.max()) + 1))
        for at, row in enumerate(panel.rows):
            if panel.mask[at].any():
                end = panel.start + panel.step * (int(columns[at]) + 1)
                last[row] = max(last.get(row, -math.inf), end)
    if not ends or len(last) < limits.group:
        return ()
    now = max(ends)
    gone = [(row, end) for row, end in last.items() if now - end >= limits.lasts]
    if len(gone) > max(1, limits.most * len(last)):
        return ()
    return tuple(
        Outlier("telemetry", row, end, end + limits.lasts, now, -1.0, 4 * limits.z, 0.0, 1.0) for row, end in gone
    )


def _exporter(metric: str) -> str:
    host = metric.startswith(("cpu", "host", "disk", "io_", "load", "processes", "memory_pressure", "rdma", "node"))
    return "host" if host else "gpu"
