"""Layouts of timelines: in their frame, without text, and small."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from bot.render.pictures.timeline_layout import across, anchor, layout
from kb.timeline.picture import COLUMNS, Mark, Timeline
from tests.support.bot_samples import NOON
from tests.support.made_pages import row, timeline

NUMBERS = re.compile(r"-?\d+(?:\.\d+)?")


def test_rows_that_stand_out_come_first_and_are_tall():
    """With their names, when they fell silent, and their signs where they belong."""
    made = layout(timeline())
    odd, *rest = made.rows
    assert (odd.row.label, odd.named, odd.last, odd.error, odd.silent) == (
        "Boom",
        True,
        41.67,
        41.67,
        "silent for 00:02:20",
    )
    assert [(item.row.label, item.height < odd.height) for item in rest] == [("rank 1", True), ("rank 2", True)]
    assert all(item.y + item.height <= made.height for item in made.rows)
    assert (made.has("cause"), made.has("error")) == (True, True)


def test_cells_are_put_together_by_level():
    """A path for each level and kind, each row's cells as wide as the picture together."""
    made = layout(timeline())
    assert [name for name, _ in made.paths] == ["s9", "u0", "u9"]
    widths = [int(item) for _, path in made.paths for item in re.findall(r"h(\d+)v", path)]
    assert sum(widths) == 3 * COLUMNS


def test_broken_activity_is_silence():
    """Characters that are not ASCII digits, and values that are too short or too long, are drawn as silence or left out."""
    made = layout(replace(timeline(), rows=(replace(row(), heard="9x٣"), replace(row(), heard="9" * 999))))
    assert {name for name, _ in made.paths} == {"u0", "u9"}
    assert all(
        int(x) + int(wide) <= COLUMNS for _, path in made.paths for x, wide in re.findall(r"M(\d+) [^h]*h(\d+)", path)
    )


def test_flags_that_are_near_stand_one_above_the_other():
    """In the order of time, each with a letter."""
    marks = (
        Mark("cause", NOON + 10.0, "a"),
        Mark("silence", NOON + 12.0, "b"),
        Mark("end", NOON + 200.0, "c"),
        Mark("x", NOON - 5, "d"),
    )
    made = layout(replace(timeline(), marks=marks))
    assert [(flag.letter, flag.y) for flag in made.flags] == [("A", 0), ("B", 1), ("C", 0)]


@pytest.mark.parametrize("nothing", [{"start": None}, {"rows": ()}, {"end": NOON}])
def test_without_times_there_is_no_picture(nothing):
    """Only the text is shown."""
    assert layout(replace(timeline(), **nothing)) is None


def test_the_most_rows_there_can_be_stay_small():
    """96 rows that change at every column."""
    busy = "".join(str(at % 10) for at in range(COLUMNS))
    made = layout(
        Timeline(
            "x", start=NOON, end=NOON + 240, rows=tuple(replace(row(f"rank {at}"), heard=busy) for at in range(96))
        )
    )
    assert made is not None
    assert sum(len(path) for _, path in made.paths) < 500_000
    assert sum(item.named for item in made.rows) < 60


def test_words_at_the_edge_run_inwards():
    """So that none is cut."""
    assert [anchor(item) for item in (0.0, 50.0, 99.0)] == ["start", "middle", "end"]
    assert [across(item, 0.0, 10.0) for item in (-5.0, 5.0, 50.0)] == [0.0, 50.0, 100.0]
