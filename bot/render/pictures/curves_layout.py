"""The layout of a chart of curves, for an SVG of any width: 1,000 units wide, 100 high. Nothing is drawn here."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from bot.render.pictures.timeline_layout import SPARSE, Tick, across, anchor
from bot.render.pictures.timeline_words import clock, ticks
from kb.timeline.curves import Axis, Chart, CurveLine

WIDE, HIGH = 1000.0, 100.0
LOGARITHMIC = 1000.0  # ratio of the largest to the smallest value from which on the axis is logarithmic
HOLE = 3.0  # multiples of the usual distance between two values; longer gaps are not drawn
BYTES = "bytes"
_UNITS = {"C": "°C"}
ROOM = 0.06  # above and below
COLOURS = 6  # names of outlying lines

_Values = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Curve:
    """A line: its style class, outline and name; `broken`: where it was not finite, in percent of the width."""

    style: str
    path: str
    label: str
    why: str = ""
    broken: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Level:
    """A value on the axis, in percent from the top."""

    y: float
    text: str


@dataclass(frozen=True, slots=True)
class ChartLayout:
    """A chart. `band`: outline of the range of most rows; `curves`: thin ones first, outlying ones last."""

    title: str
    axis: str
    rows: int
    curves: tuple[Curve, ...]
    band: str
    levels: tuple[Level, ...]
    ticks: tuple[Tick, ...]
    at: float | None
    at_text: str
    anchor: str
    logarithmic: bool
    others: int

    @property
    def named(self) -> tuple[Curve, ...]:
        """The lines that have a name below the chart."""
        return tuple(curve for curve in self.curves if curve.label)


def layout(chart: Chart) -> ChartLayout | None:
    """Return the layout of a chart; None if nothing can be drawn."""
    known = [value for values in _all(chart) for value in values if value is not None and math.isfinite(value)]
    columns = max((len(values) for values in _all(chart)), default=0)
    if not known or columns == 0 or not (math.isfinite(chart.start) and math.isfinite(chart.width) and chart.width > 0):
        return None
    scale = _Scale(min(known), max(known), columns)
    end = chart.start + columns * chart.width
    at = None if chart.at is None or not chart.start <= chart.at <= end else across(chart.at, chart.start, end)
    odd = [line for line in chart.lines if line.why]
    plain = [line for line in chart.lines if not line.why]
    alone = chart.rows == 1 and len(chart.lines) == 1
    curves = [_curve(line, "lone" if alone else "thin", scale, label=line.label if alone else "") for line in plain]
    if chart.median:
        curves.append(Curve("middle", scale.path(chart.median), f"median of {chart.rows:,}"))
    curves += [_curve(line, f"odd c{index % COLOURS}", scale, line.label) for index, line in enumerate(odd)]
    return ChartLayout(
        title=chart.title + (f", {_UNITS.get(chart.unit, chart.unit)}" if chart.unit and chart.unit != BYTES else ""),
        axis=chart.axis,
        rows=chart.rows,
        curves=tuple(curves),
        band=scale.band(chart.low, chart.high) if chart.low and chart.high else "",
        levels=tuple(Level(round(100 - scale.up(level), 2), value_text(level, chart.unit)) for level in scale.levels()),
        ticks=tuple(ticks_of(chart.axis, chart.start, end)),
        at=at,
        at_text="" if chart.at is None else f"step {chart.at:,.0f}" if chart.axis == "step" else clock(chart.at),
        anchor="end" if at is not None and at > 50 else "start",
        logarithmic=scale.logarithmic,
        others=0 if alone else len(plain),
    )


def _all(chart: Chart) -> Iterator[_Values]:
    yield from (line.values for line in chart.lines)
    yield from (chart.median, chart.low, chart.high)


def _curve(line: CurveLine, style: str, scale: _Scale, label: str) -> Curve:
    broken = tuple(scale.across(column) / 10 for column in line.broken if 0 <= column < scale.columns)
    return Curve(style, scale.path(line.values), label, line.why, broken)


class _Scale:
    """Return the position of a value in a column. `columns`: how many there are."""

    def __init__(self, low: float, high: float, columns: int) -> None:
        self.logarithmic = low > 0 and high / low > LOGARITHMIC
        self._low, self._high, self.columns = low, high, columns
        bottom, top = self._level(low), self._level(high)
        if top - bottom <= 1e-9 * max(abs(top), abs(bottom)):
            room = abs(top) * 0.1 or 1.0
            bottom, top = bottom - room, top + room
        room = ROOM * (top - bottom)
        self._bottom, self._top = bottom - room, top + room

    def _level(self, value: float) -> float:
        return math.log10(value) if self.logarithmic else value

    def up(self, value: float) -> float:
        """Return the position in percent of the height."""
        return 100.0 * (self._level(value) - self._bottom) / (self._top - self._bottom)

    def across(self, column: int) -> float:
        """Return the center of a column."""
        return (column + 0.5) / self.columns * WIDE

    def _point(self, column: int, value: float) -> str:
        return f"{self.across(column):.0f} {HIGH - self.up(value):.1f}"

    def path(self, values: _Values) -> str:
        """Return the outline of a line, interrupted at long gaps."""
        return "".join(
            "M" + "L".join(self._point(at, value) for at, value in run) + ("h0" if len(run) == 1 else "")
            for run in _runs(values)
        )

    def band(self, low: _Values, high: _Values) -> str:
        """Return the outline of an area."""
        both = [(lower, upper) for lower, upper in zip(low, high, strict=False)]
        known: list[float | None] = [None if None in pair else float(at) for at, pair in enumerate(both)]
        parts = []
        for run in _runs(known):
            columns = [at for at, _ in run]
            there = [self._point(at, upper) for at in columns if (upper := both[at][1]) is not None]
            back = [self._point(at, lower) for at in reversed(columns) if (lower := both[at][0]) is not None]
            parts.append("M" + "L".join((*there, *back)) + "z")
        return "".join(parts)

    def levels(self) -> list[float]:
        """Three to five round values."""
        if self.logarithmic:
            first, last = math.ceil(self._bottom), math.floor(self._top)
            every = max(1, math.ceil((last - first + 1) / 5))
            return [10.0**power for power in range(first, last + 1, every)]
        span = self._top - self._bottom
        unit = 10.0 ** math.floor(math.log10(span / 4))
        step = next(unit * many for many in (1, 2, 2.5, 5, 10) if span / (unit * many) <= 4.5)
        first = math.ceil(self._bottom / step)
        return [at * step for at in range(first, math.floor(self._top / step) + 1)]


def _runs(values: _Values) -> Iterator[list[tuple[int, float]]]:
    """Yield the known values in pieces without gaps."""
    known = [(at, value) for at, value in enumerate(values) if value is not None and math.isfinite(value)]
    gaps = [after[0] - before[0] for before, after in pairwise(known)]
    longest = HOLE * median(gaps) if gaps else 1.0
    run: list[tuple[int, float]] = []
    for point in known:
        if run and point[0] - run[-1][0] > longest:
            yield run
            run = []
        run.append(point)
    if run:
        yield run


def ticks_of(axis: Axis, start: float, end: float) -> Iterator[Tick]:
    """Yield round times or steps of an axis."""
    found: Iterable[tuple[float, str]]
    if axis == "time":
        found = [(time, clock(time, seconds=end - start < 6 * 3600)) for time in ticks(start, end)]
        if all(re.fullmatch(r"\d\d:\d\d:00", text) for _, text in found):
            found = [(time, text[:-3]) for time, text in found]  # whole minutes, so that the labels have room
    else:
        unit = 10.0 ** math.floor(math.log10(max(end - start, 2.0) / 5))
        step = max(1.0, next(unit * many for many in (1, 2, 5, 10) if (end - start) / (unit * many) <= 7))
        first = math.ceil(start / step)
        found = [(at * step, f"{at * step:,.0f}") for at in range(first, math.floor(end / step) + 1)]
    for at, (value, text) in enumerate(found):
        x = across(value, start, end)
        yield Tick(x, text, at % SPARSE == 0, anchor(x))


_SIZES = (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e4))  # four digits are readable without a separator


def value_text(value: float, unit: str = "") -> str:
    """Return a value in a short, readable form; bytes with their unit."""
    if value != 0 and (abs(value) < 1e-3 or abs(value) >= 1e15):
        return f"{value:.3g}"
    for letter, size in _SIZES:
        if abs(value) >= size:
            return f"{value / min(size, 1e3 if letter == 'k' else size):.4g} {letter}{'B' if unit == BYTES else ''}"
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"
