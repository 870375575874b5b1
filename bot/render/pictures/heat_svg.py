"""A heat map as SVG: panels that a page puts side by side at any width, as those of a timeline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from markupsafe import Markup

from bot.render.pictures.curves_layout import ticks_of
from bot.render.pictures.rows_svg import axis, names
from bot.render.pictures.svg import MIDDLE, element, joined, text
from bot.render.pictures.text_metrics import fitted, width
from bot.render.pictures.timeline_layout import LABELLED, across
from bot.render.pictures.timeline_svg import FIGURES, NAMES, Sign
from bot.render.text_format import many
from bot.render.theme import PAGE_TEXT
from kb.timeline.heat import LEVELS, HeatMap, HeatRow

PITCHES = ((8, 26), (20, 20))  # pixels of a row, up to this number of rows
LEAST_REMARK = 40  # pixels
TOP = 16  # pixels above the rows, for the name of the failing step


@dataclass(frozen=True, slots=True)
class HeatPanels:
    """The parts of a heat map as SVG.

    `names`, `cells` and `figures` are `height` pixels high, `clock` is the axis of steps, and `label` describes the map in sentences.
    """

    title: str
    names: Markup
    cells: Markup
    figures: Markup
    clock: Markup
    legend: tuple[Sign, ...]
    height: int
    label: str


def panels(made: HeatMap) -> HeatPanels:
    """Return the panels of a heat map."""
    pitch = next((pixels for most, pixels in PITCHES if len(made.rows) <= most), LABELLED)
    placed = [(row, TOP + at * pitch) for at, row in enumerate(made.rows)]
    height = TOP + pitch * len(placed)
    return HeatPanels(
        title=made.title,
        names=joined(_names(placed, pitch)),
        cells=joined((_cells(made, placed, pitch, height), *_failing(made, height))),
        figures=joined(_figures(placed, pitch)),
        clock=joined(axis(ticks_of("step", made.start, made.start + made.columns * made.width))),
        legend=tuple(_legend(made)),
        height=height,
        label=_label(made),
    )


_Placed = list[tuple[HeatRow, int]]


def _names(placed: _Placed, pitch: int) -> Iterator[Markup]:
    for row, y in placed:
        name, remark = (row.node, row.label) if row.count > 1 and row.node else (row.label, "")
        room = NAMES - width(name, PAGE_TEXT.text, bold=row.suspect) - 8
        remark = fitted(remark, room, PAGE_TEXT.small) if remark and room > LEAST_REMARK else ""
        yield from names(
            name, remark, room=NAMES, size=PAGE_TEXT.text, bold=row.suspect,
            y=_baseline(y, pitch), class_="suspect" if row.suspect else None,
        )  # fmt: skip


def _cells(made: HeatMap, placed: _Placed, pitch: int, height: int) -> Markup:
    """Return all cells, one unit wide each; equal neighbors merge, and cells of one level are one path."""
    paths: dict[str, list[str]] = {}
    for row, y in placed:
        x = 0
        for level, run in groupby(row.cells):
            wide = len(list(run))
            if level != ".":
                name = "u0" if level == "0" else f"s{level}"
                paths.setdefault(name, []).append(f"M{x} {y}h{wide}v{pitch - 2}h-{wide}z")
            x += wide
    return element(
        "svg",
        joined(element("path", class_=name, d="".join(path)) for name, path in sorted(paths.items())),
        width="100%",
        height=height,
        viewBox=f"0 0 {made.columns} {height}",
        preserveAspectRatio="none",
        shape_rendering="crispEdges",
    )


def _failing(made: HeatMap, height: int) -> Iterator[Markup]:
    """Yield the mark of the failing step, as in charts."""
    if made.failing is None:
        return
    at = across(made.failing, made.start, made.start + made.columns * made.width)
    x, left = f"{at}%", at > 50
    yield element("line", class_="failing", x1=x, x2=x, y1=TOP - 4, y2=height)
    yield text(
        f"step {made.failing:,}", class_=f"failing {'end' if left else 'start'}", x=x, y=10, dx=4 if left else -4
    )


def _figures(placed: _Placed, pitch: int) -> Iterator[Markup]:
    """Yield the largest multiple of each slow row, and its step."""
    for row, y in placed:
        if row.slow is not None:
            words = f"{row.worst:.2g} times, step {row.at:,}"
            yield text(fitted(words, FIGURES, PAGE_TEXT.text), x="100%", y=_baseline(y, pitch))


def _baseline(y: int, pitch: int) -> float:
    return y + (pitch - 2) / 2 + MIDDLE * PAGE_TEXT.text


def _legend(made: HeatMap) -> Iterator[Sign]:
    yield Sign(_swatch("u0"), 14, "as fast as the median of the step")
    for level in (1, 3, 5, 8):
        yield Sign(_swatch(f"s{level}"), 14, f"{LEVELS[level - 1]:g} times")
    if any("." in row.cells for row in made.rows):
        yield Sign(element("rect", class_="unknown", width=14, height=10, y=-5), 14, "not logged")


def _swatch(style: str) -> Markup:
    return element("rect", class_=style, width=14, height=10, y=-5)


def _label(made: HeatMap) -> str:
    folded = f" {made.folded}." if made.folded else ""
    return f"{made.title} of {many(made.ranks, 'rank')} over steps. {made.finding}.{folded}"
