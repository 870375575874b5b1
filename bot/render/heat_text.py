"""The heat map of ranks over steps as lines of a terminal: a character for each cell, dark to hot, in colour if allowed.

Like the page's picture, but in the columns of a terminal: several steps share a cell where there are many, and the slowest
of them is shown, so no slow step can vanish.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from bot.render.text_format import many
from bot.render.text_page import OutputLine, Weight

if TYPE_CHECKING:
    from bot.render.text_page import TextPage
    from kb.timeline.heat import HeatMap, HeatRow

_SHADES = ".--++**###"  # by level, see kb.timeline.heat.LEVELS
_STYLES = {".": "quiet", "-": "warm", "+": "warmer", "*": "hot", "#": "hottest"}
_LEGEND = (
    (".", "as the median"), ("-", "from 1.1 times"), ("+", "1.35"), ("*", "1.75"), ("#", "2.5"),
)  # fmt: skip
_UNKNOWN = "."  # in a row's cells
_LANES = 8  # rows, beyond which those that were never slow share one
_LABEL = 24  # columns of the longest label
_FIGURE = 18  # columns for a row's largest multiple and its steps
_WIDEST_CELL = 4
_MARGIN = 3


def add_heat(page: TextPage, made: HeatMap) -> None:
    """Add a map to a report, with what is to be seen in it as its title."""
    with page.weighing(Weight.PICTURE):
        page.gap()
        found = made.finding.removeprefix("Slow: ")
        page.text(f"{made.title} of {many(made.ranks, 'rank')}, slow: {found}", "title", hang=2)
        page.lines.extend(heat_lines(made, page.width, whole=page.verbose))
        page.gap()


def heat_lines(made: HeatMap, width: int, *, whole: bool = False) -> Iterator[OutputLine]:
    """Yield the rows, the axis and the legend of a map, in at most `width` columns. `whole`: no rows are folded."""
    rows = made.rows if whole else _folded(made.rows)
    label = min(_LABEL, max(len(_name(row)) for row in rows))
    shared, wide = _fit(made.columns, width - _MARGIN - label - 1 - _FIGURE)
    for row in rows:
        yield _line(row, label, shared, wide)
    cells = -(-made.columns // shared) * wide
    margin = " " * (_MARGIN + label + 1)
    yield from (OutputLine(text, margin, "quiet", weight=Weight.PICTURE) for text in _axis(made, cells, shared, wide))
    yield OutputLine(
        "   ".join(f"{mark} {words}" for mark, words in _signs(made)), margin, "quiet", weight=Weight.PICTURE
    )


def shaded(cells: str, shared: int, wide: int) -> str:
    """Return the characters of a row: the slowest of each `shared` cells, `wide` times."""
    groups = (cells[at : at + shared].replace(_UNKNOWN, "") for at in range(0, len(cells), shared))
    return "".join((_SHADES[int(max(group))] if group else " ") * wide for group in groups)


def _fit(columns: int, room: int) -> tuple[int, int]:
    """Return how many columns of the map share a cell, and the width of a cell in characters."""
    shared = max(1, -(-columns // max(1, room)))
    return shared, max(1, min(_WIDEST_CELL, room // -(-columns // shared)))


def _folded(rows: Sequence[HeatRow]) -> Sequence[HeatRow]:
    """Return the rows; those of ranks that were never slow as one, which shows their slowest, where there are many."""
    calm = [row for row in rows if row.slow is None and not row.suspect]
    if len(rows) <= _LANES or len(calm) < 2:
        return rows
    cells = "".join(
        max(column, key=lambda cell: -1 if cell == _UNKNOWN else int(cell))
        for column in zip(*(row.cells for row in calm), strict=True)
    )
    count = sum(row.count for row in calm)
    worst = max(calm, key=lambda row: row.worst)
    return [
        *(row for row in rows if row not in calm),
        replace(worst, label=f"{count:,} other ranks", cells=cells, count=count, node=""),
    ]


def _line(row: HeatRow, label: int, shared: int, wide: int) -> OutputLine:
    cells = shaded(row.cells, shared, wide)
    name = _name(row)[:label]
    mark = " > " if row.suspect else " " * _MARGIN
    figure = f" {_figure(row)}" if row.slow is not None else ""
    spans = (*((_style(character), "".join(run)) for character, run in groupby(cells)), ("", figure))
    return OutputLine(cells + figure, f"{mark}{name:<{label}} ", spans=spans, weight=Weight.PICTURE)


def _style(character: str) -> str:
    return _STYLES.get(character, "")


def _name(row: HeatRow) -> str:
    return row.node if row.count > 1 and row.node else row.label


def _figure(row: HeatRow) -> str:
    return f"{row.worst:.2g}x at {row.at:,}"


def _axis(made: HeatMap, cells: int, shared: int, wide: int) -> Iterator[str]:
    """Yield the first and the last step below the cells, and a mark below the step of the failure."""
    first, last = round(made.start + 0.5), round(made.start + (made.columns - 1) * made.width + 0.5)
    left, right = f"step {first:,}", f"{last:,}"
    yield f"{left}{right:>{max(len(right) + 1, cells - len(left))}}"
    if made.failing is not None:
        at = int((made.failing - made.start) / made.width) // shared * wide
        words = f"step {made.failing:,}: failed"
        yield f"{'':{at}}^ {words}" if at < cells // 2 else f"{words:>{max(len(words), at - 1)}} ^"


def _signs(made: HeatMap) -> Iterator[tuple[str, str]]:
    yield from _LEGEND
    if any(_UNKNOWN in row.cells for row in made.rows):
        yield "blank", "not logged"
