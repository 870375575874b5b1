"""Tables as plain text."""

from __future__ import annotations

from bot.render.columns import Column, aligned

COLUMNS = (Column("node"), Column("jobs", right=True), Column("weeks"))
ROWS = (("gpu-17", "12", "3 4 5"), ("a-longer-name", "1", ""))


def test_columns_are_as_wide_as_their_widest_cell():
    """Numbers are aligned to the right; no line ends with spaces."""
    assert list(aligned(COLUMNS, ROWS)) == [
        "node           jobs  weeks",
        "gpu-17           12  3 4 5",
        "a-longer-name     1",
    ]


def test_headings_are_optional():
    """Without headings the cells alone decide the widths; no rows give no lines."""
    assert list(aligned(COLUMNS, ROWS, heads=False)) == ["gpu-17         12  3 4 5", "a-longer-name   1"]
    assert list(aligned(COLUMNS, (), heads=False)) == []
