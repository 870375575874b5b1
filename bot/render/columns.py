"""Tables as plain text, for pipes, files and messages: columns as wide as their widest cell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. `right`: its cells are aligned to the right, as numbers are.

    `cut`: on a terminal that is too narrow, its cells are cut, never wrapped; the other columns keep their width.
    """

    head: str
    right: bool = False
    cut: bool = False


def aligned(columns: Sequence[Column], rows: Sequence[Sequence[str]], *, heads: bool = True) -> Iterator[str]:
    """Yield the lines of a table; the last column ends where its text ends. `heads`: with a line of headings."""
    cells = [[column.head for column in columns], *rows] if heads else rows
    widths = [max(map(len, column), default=0) for column in zip(*cells, strict=True)]
    for row in cells:
        parts = (
            cell.rjust(width) if column.right else cell.ljust(width)
            for cell, column, width in zip(row, columns, widths, strict=False)
        )
        yield "  ".join(parts).rstrip()
