"""Layouts of curves: in their frame, without text, and small."""

from __future__ import annotations

import re

import pytest

from bot.render.pictures import curves_layout
from bot.render.pictures.curves_layout import value_text
from kb.timeline.curves import Chart, CurveLine
from tests.support.made_pages import curves

NUMBERS = re.compile(r"-?\d+(?:\.\d+)?")


def test_a_chart_stays_in_its_frame():
    """All points between 0 and 1,000 across and 0 and 100 down; the failing step where it is."""
    drawn = curves_layout.layout(curves().charts[0])
    for item in (*(line.path for line in drawn.curves), drawn.band):
        pairs = list(zip(*[iter(NUMBERS.findall(item.replace("h0", "")))] * 2, strict=True))
        assert pairs
        assert all(0 <= float(x) <= 1000 and 0 <= float(y) <= 100 for x, y in pairs)
    assert (drawn.at, drawn.at_text, drawn.anchor) == (97.5, "step 390", "end")
    assert [(item.label, item.why) for item in drawn.named] == [("median of 3", ""), ("Loss", "apart")]
    assert drawn.named[1].broken == (98.75,)


def test_every_value_that_is_no_number_has_its_cross():
    """Also where there are many; a column that the chart lacks has none."""
    line = CurveLine("a", (1.0,) * 40 + (None,) * 80, broken=(*range(40, 120), 500))
    drawn = curves_layout.layout(Chart("loss", "Loss", "", "step", 0.5, 1.0, 1, (line,)))
    assert len(drawn.curves[0].broken) == 80


def test_the_mark_is_at_the_value_of_its_step():
    """A line and the mark of a step are at the same place."""
    values = (1.0, 2.0, 9.0, 9.0)
    drawn = curves_layout.layout(Chart("loss", "Loss", "", "step", 0.5, 1.0, 1, (CurveLine("a", values),), at=3))
    assert float(NUMBERS.findall(drawn.curves[0].path)[4]) / 10 == drawn.at


def test_long_holes_are_not_drawn_over():
    """A line that stops for ten columns and goes on is two pieces; one that has a value every third column is one."""
    hole = CurveLine("a", (1.0, 2.0, 3.0, *(None,) * 10, 4.0, 5.0))
    thin = CurveLine("b", tuple(float(at) if at % 3 == 0 else None for at in range(15)))
    drawn = curves_layout.layout(Chart("loss", "Loss", "", "step", 0.0, 1.0, 2, (hole, thin)))
    assert [curve.path.count("M") for curve in drawn.curves] == [2, 1]


def test_very_unlike_values_are_drawn_by_their_logarithm():
    """With powers of ten on the axis; not where there is nothing or less."""
    values = (1.0, 10.0, 1e6)
    assert curves_layout.layout(Chart("loss", "Loss", "", "step", 0.0, 1.0, 1, (CurveLine("a", values),))).logarithmic
    assert not curves_layout.layout(
        Chart("loss", "Loss", "", "step", 0.0, 1.0, 1, (CurveLine("a", (-1.0, 1e9, 2.0)),))
    ).logarithmic


@pytest.mark.parametrize("values", [(), (None,), (None, None)])
def test_nothing_is_no_chart(values):
    """And no crash."""
    assert curves_layout.layout(Chart("loss", "Loss", "", "step", 0.0, 1.0, 1, (CurveLine("a", values),))) is None


@pytest.mark.parametrize("value", [0.0, 5.0, -3.25, 1e-9, 1e14])
def test_a_constant_line_is_a_chart(value):
    """The line is drawn in the middle, with its value next to it."""
    drawn = curves_layout.layout(Chart("loss", "Loss", "", "step", 0.0, 1.0, 1, (CurveLine("a", (value,) * 5),)))
    assert drawn.levels
    assert {y for _, y in zip(*[iter(NUMBERS.findall(drawn.curves[0].path))] * 2, strict=True)} == {"50.0"}


def test_values_are_reported_in_few_letters():
    """Bytes with their unit."""
    found = [
        value_text(0.0),
        value_text(1755.0),
        value_text(65e9, "bytes"),
        value_text(12_000),
        value_text(2.5e6),
        value_text(0.000012),
        value_text(0.25),
        value_text(-30e6),
    ]
    assert found == ["0", "1,755", "65 GB", "12 k", "2.5 M", "1.2e-05", "0.25", "-30 M"]


def test_times_are_as_short_as_they_can_be():
    """Seconds only where a tick is not at a whole minute, so that labels do not touch."""
    noon = 1_772_366_400.0  # 2026-03-01 12:00:00 UTC
    assert [tick.text for tick in curves_layout.ticks_of("time", noon, noon + 1500)] == [
        "12:00", "12:05", "12:10", "12:15", "12:20", "12:25",
    ]  # fmt: skip
    assert [tick.text for tick in curves_layout.ticks_of("time", noon, noon + 90)][:2] == ["12:00:00", "12:00:15"]
