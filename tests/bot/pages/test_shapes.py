"""Timelines and curves as shapes: in their frame, without text, and small."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from bot.pages.svg_charts import draw, told
from bot.pages.svg_timeline import across, anchor, lanes
from kb.timeline.curves import Chart, Line
from kb.timeline.timeline import COLUMNS, Mark, Timeline
from tests.support.bot_samples import NOON
from tests.support.made_pages import curves, row, timeline

NUMBERS = re.compile(r"-?\d+(?:\.\d+)?")


def test_rows_that_stand_out_come_first_and_are_tall():
    """With their names, when they fell silent, and their signs where they belong."""
    made = lanes(timeline())
    odd, *rest = made.lanes
    assert (odd.row.label, odd.named, odd.last, odd.error, odd.silent) == (
        "Boom",
        True,
        41.67,
        41.67,
        "silent for 00:02:20",
    )
    assert [(one.row.label, one.height < odd.height) for one in rest] == [("rank 1", True), ("rank 2", True)]
    assert all(one.y + one.height <= made.height for one in made.lanes)
    assert (made.has("cause"), made.has("error")) == (True, True)


def test_cells_are_put_together_by_level():
    """A path for each level and kind, each row's cells as wide as the picture together."""
    made = lanes(timeline())
    assert [name for name, _ in made.paths] == ["s9", "u0", "u9"]
    widths = [int(one) for _, path in made.paths for one in re.findall(r"h(\d+)v", path)]
    assert sum(widths) == 3 * COLUMNS


def test_broken_activity_is_silence():
    """What is no digit, too short, too long."""
    made = lanes(replace(timeline(), rows=(replace(row(), heard="9x٣"), replace(row(), heard="9" * 999))))
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
    made = lanes(replace(timeline(), marks=marks))
    assert [(one.letter, one.y) for one in made.flags] == [("A", 0), ("B", 1), ("C", 0)]


@pytest.mark.parametrize("nothing", [{"start": None}, {"rows": ()}, {"end": NOON}])
def test_without_times_there_is_no_picture(nothing):
    """The words stand alone."""
    assert lanes(replace(timeline(), **nothing)) is None


def test_the_most_rows_there_can_be_stay_small():
    """96 rows that change at every column."""
    busy = "".join(str(at % 10) for at in range(COLUMNS))
    made = lanes(
        Timeline(
            "x", start=NOON, end=NOON + 240, rows=tuple(replace(row(f"rank {at}"), heard=busy) for at in range(96))
        )
    )
    assert sum(len(path) for _, path in made.paths) < 500_000
    assert sum(one.named for one in made.lanes) < 60


def test_a_chart_stays_in_its_frame():
    """All points between 0 and 1,000 across and 0 and 100 down; the failing step where it is."""
    drawn = draw(curves().charts[0])
    for one in (*(line.path for line in drawn.curves), drawn.band):
        pairs = list(zip(*[iter(NUMBERS.findall(one.replace("h0", "")))] * 2, strict=True))
        assert pairs
        assert all(0 <= float(x) <= 1000 and 0 <= float(y) <= 100 for x, y in pairs)
    assert (drawn.at, drawn.at_text, drawn.anchor) == (97.5, "step 390", "end")
    assert [(one.label, one.why) for one in drawn.told] == [("median of 3", ""), ("Loss", "apart")]
    assert drawn.told[1].broken == (98.75,)


def test_long_holes_are_not_drawn_over():
    """A line that stops for ten columns and goes on is two pieces; one that has a value every third column is one."""
    hole = Line("a", (1.0, 2.0, 3.0, *(None,) * 10, 4.0, 5.0))
    thin = Line("b", tuple(float(at) if at % 3 == 0 else None for at in range(15)))
    drawn = draw(Chart("loss", "Loss", "", "step", 0.0, 1.0, 2, (hole, thin)))
    assert [one.path.count("M") for one in drawn.curves] == [2, 1]


def test_very_unlike_values_are_drawn_by_their_logarithm():
    """With powers of ten on the axis; not where there is nothing or less."""
    values = (1.0, 10.0, 1e6)
    assert draw(Chart("loss", "Loss", "", "step", 0.0, 1.0, 1, (Line("a", values),))).logarithmic
    assert not draw(Chart("loss", "Loss", "", "step", 0.0, 1.0, 1, (Line("a", (-1.0, 1e9, 2.0)),))).logarithmic


@pytest.mark.parametrize("values", [(), (None,), (None, None)])
def test_nothing_is_no_chart(values):
    """And no crash."""
    assert draw(Chart("loss", "Loss", "", "step", 0.0, 1.0, 1, (Line("a", values),))) is None


@pytest.mark.parametrize("value", [0.0, 5.0, -3.25, 1e-9, 1e14])
def test_a_constant_line_is_a_chart(value):
    """In the middle, with a level beside it."""
    drawn = draw(Chart("loss", "Loss", "", "step", 0.0, 1.0, 1, (Line("a", (value,) * 5),)))
    assert drawn.levels
    assert {y for _, y in zip(*[iter(NUMBERS.findall(drawn.curves[0].path))] * 2, strict=True)} == {"50.0"}


def test_values_are_told_in_few_letters():
    """Bytes with their unit."""
    found = [
        told(0.0),
        told(1755.0),
        told(65e9, "bytes"),
        told(12_000),
        told(2.5e6),
        told(0.000012),
        told(0.25),
        told(-30e6),
    ]
    assert found == ["0", "1,755", "65 GB", "12 k", "2.5 M", "1e-05", "0.25", "-30 M"]


def test_words_at_the_edge_run_inwards():
    """So that none is cut."""
    assert [anchor(one) for one in (0.0, 50.0, 99.0)] == ["start", "middle", "end"]
    assert [across(one, 0.0, 10.0) for one in (-5.0, 5.0, 50.0)] == [0.0, 50.0, 100.0]
