"""What a terminal shows, drawn with rich: styled lines, tables, and a line of progress that is drawn over itself.

The only module that imports rich. Import it only where there is a terminal: in a pipe there is nothing to draw, and rich
takes 25 ms to import. No text is read as markup; the caller escapes what is not visible (bot.render.text_format.shown).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TextIO

from rich.console import Console
from rich.control import Control
from rich.segment import ControlType
from rich.style import Style
from rich.table import Table
from rich.text import Text

from bot.render.columns import Column

__all__ = ["Console", "ProgressLine", "console_of", "draw_lines", "draw_table"]

_STYLES = {
    "head": "bold",
    "title": "bold",
    "label": "dim",
    "quiet": "dim",
    "caution": "yellow",
    "mark": "bold red",
    "alarm": "bold red",
    "watch": "bold yellow",
    "calm": "bold green",
    "warm": "yellow",
    "warmer": "black on yellow",
    "hot": "black on color(208)",
    "hottest": "bold bright_white on color(160)",
}
_GAP = 2  # columns between two columns of a table
_ERASE = Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 0))


def console_of(out: TextIO) -> Console:
    """Return the console for an output: its width, and the styles that it supports (NO_COLOR, TERM)."""
    return Console(file=out, highlight=False, markup=False, emoji=False)


def draw_lines(lines: Iterable[Sequence[tuple[str, str, str]]], console: Console) -> None:
    """Print lines of (text, style, link) parts as they are, without wrapping.

    A style is a key of `_STYLES`, or empty; a link is an address, or empty.
    """
    for line in lines:
        text = Text()
        for part, style, link in line:
            text.append(part, Style.parse(_STYLES.get(style, "")) + Style(link=link or None))
        console.print(text, soft_wrap=True, highlight=False)


def draw_table(columns: Sequence[Column], rows: Iterable[Sequence[str]], console: Console) -> None:
    """Print a table with its headings, fitted to the width of the console: the last column wraps, the others are cut.

    If columns say that they may be cut, they are, the widest first, and each row stays one line.
    """
    one_line = any(column.cut for column in columns)
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style=_STYLES["head"])
    for column in columns:
        folds = column is columns[-1] and not one_line
        table.add_column(
            Text(column.head, no_wrap=not folds),
            justify="right" if column.right else "left",
            no_wrap=not (
                column.cut if one_line else folds
            ),  # rich narrows only columns that may wrap; their texts do not
            overflow="fold" if folds else "ellipsis",
        )
    for row in rows:
        table.add_row(*(Text(cell, no_wrap=one_line) for cell in row))
    console.print(table)


class ProgressLine:
    """One line of a terminal that is drawn over itself. A terminal that cannot move its cursor shows none."""

    def __init__(self, out: TextIO) -> None:
        self._console = console_of(out)

    def draw(self, text: str) -> None:
        """Show a text in place of the one before, cut to the width of the terminal."""
        if self._console.is_dumb_terminal:
            return
        line = Text(text, end="")
        line.truncate(self._console.width - 1, overflow="ellipsis")
        self._console.control(_ERASE)
        self._console.print(line, end="", soft_wrap=True)

    def erase(self) -> None:
        """Remove the text."""
        self._console.control(_ERASE)
