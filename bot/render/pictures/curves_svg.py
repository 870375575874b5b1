"""A chart of curves as SVG: panels that a page combines at any width."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from markupsafe import Markup

from bot.render.pictures.curves_layout import HIGH, WIDE, ChartLayout, Curve, layout
from bot.render.pictures.rows_svg import tick_label
from bot.render.pictures.svg import CROSS, element, joined, text
from bot.render.text_format import many
from kb.timeline.curves import Chart

HEIGHT = 150  # pixels per chart
_DOWN = HEIGHT / 100  # pixels per percent


@dataclass(frozen=True, slots=True)
class Entry:
    """A legend entry: its sign (22 x 10 pixels), its label and a remark."""

    sign: Markup
    words: str
    remark: str = ""
    broken: bool = False


@dataclass(frozen=True, slots=True)
class ChartPanels:
    """A chart: values on the left, the curves, the axis below; `label`: a text description."""

    title: str
    logarithmic: bool
    label: str
    levels: Markup
    field: Markup
    clock: Markup
    legend: tuple[Entry, ...]
    height: int = HEIGHT


def panels(chart: Chart) -> ChartPanels | None:
    """Return the panels of a chart; None if nothing can be drawn."""
    placed = layout(chart)
    if placed is None:
        return None
    return ChartPanels(
        title=placed.title,
        logarithmic=placed.logarithmic,
        label=_label(placed),
        levels=joined(text(level.text, x="100%", y=level.y * _DOWN + 4) for level in placed.levels),
        field=joined((*_grid(placed), _curves(placed), *_failure(placed), *_broken(placed))),
        clock=joined(tick_label(tick, 14) for tick in placed.ticks),
        legend=tuple(_legend(placed)),
    )


def _label(placed: ChartLayout) -> str:
    words = [f"{placed.title}; {many(placed.rows, 'line')} over {'steps' if placed.axis == 'step' else 'time'}"]
    words += [
        f"{curve.label} {'is a suspect' if curve.why == 'suspect' else 'leaves the others'}"
        for curve in placed.named
        if curve.why
    ]
    words += [f"marked at {placed.at_text}"] if placed.at is not None else []
    return "; ".join(words)


def _grid(placed: ChartLayout) -> Iterator[Markup]:
    for level in placed.levels:
        y = level.y * _DOWN
        yield element("line", class_="grid", x1=0, x2="100%", y1=y, y2=y)


def _curves(placed: ChartLayout) -> Markup:
    """Return the band and the lines, stretched to the available width."""
    paths = [element("path", class_="band", d=placed.band)] if placed.band else []
    paths += [_curve(curve, curve.path) for curve in placed.curves]
    box = f"0 0 {WIDE:.0f} {HIGH:.0f}"
    return element("svg", joined(paths), width="100%", height=HEIGHT, viewBox=box, preserveAspectRatio="none")


def _curve(curve: Curve, path: str) -> Markup:
    return element("path", class_=f"curve {curve.style}", d=path)


def _failure(placed: ChartLayout) -> Iterator[Markup]:
    """Yield the mark of the failure."""
    if placed.at is None:
        return
    x, inwards = f"{placed.at}%", 4 if placed.anchor == "end" else -4
    yield element("line", class_="failing", x1=x, x2=x, y1=0, y2=HEIGHT)
    yield text(placed.at_text, class_=f"failing {placed.anchor}", x=x, y=-4, dx=inwards)


def _broken(placed: ChartLayout) -> Iterator[Markup]:
    """Yield crosses at non-finite values."""
    for curve in placed.curves:
        for x in curve.broken:
            cross = element("path", class_="cross", d=CROSS)
            yield element("svg", cross, x=f"{x}%", y=HEIGHT - 8, overflow="visible")


def _rest(placed: ChartLayout) -> str:
    """Return how many curves have no name of their own: where none is singled out, there are no others."""
    if any(curve.why for curve in placed.curves):
        return many(placed.others, "other")
    return f"each of {placed.others:,}" if placed.others == placed.rows else f"{placed.others:,} of {placed.rows:,}"


def _legend(placed: ChartLayout) -> Iterator[Entry]:
    for curve in reversed(placed.named):
        remark = {"": "", "suspect": "suspect"}.get(curve.why, "leaves the others")
        yield Entry(_curve(curve, "M0 5h22"), curve.label, remark, broken=bool(curve.broken))
    if placed.others:
        yield Entry(element("path", class_="curve thin", d="M0 5h22"), _rest(placed))
    if placed.band:
        yield Entry(element("rect", class_="band", width=22, height=10), "90 % of them")
