"""The drawn heat map: a cell for each column and row, the mark of the failing step, and its words."""

from __future__ import annotations

import re

from bot.render.pictures import heat_svg
from kb.timeline.heat import LEVELS, HeatMap, HeatRow

ROWS = (
    HeatRow("rank 0", "0000000000", 1.0, 1),
    HeatRow("rank 1", "0000005595", 6.0, 9, slow=(7, 10), suspect=True),
    HeatRow("ranks 2-9", "00.0000000", 1.0, 1, 8, "gpu-017"),
)
MADE = HeatMap("Own work in a step", 0.5, 1.0, 10, 10, ROWS, "Slow: rank 1 from step 7 on", "nine folded", 8)


def cells(svg: str) -> dict[str, list[tuple[int, int, int]]]:
    """Style → the left edge, upper edge and width of its cells."""
    paths = dict(re.findall(r'<path class="(\w+)" d="([^"]*)"', svg))
    return {
        style: [(int(x), int(y), int(wide)) for x, y, wide in re.findall(r"M(\d+) (\d+)h(\d+)v", path)]
        for style, path in paths.items()
    }


def test_every_cell_is_where_its_step_is():
    """Neighbors of one level are one; a step that is not known has none."""
    top, pitch = heat_svg.TOP, heat_svg.PITCHES[0][1]
    drawn = heat_svg.panels(MADE)

    assert cells(drawn.cells) == {
        "s5": [(6, top + pitch, 2), (9, top + pitch, 1)],
        "s9": [(8, top + pitch, 1)],
        "u0": [(0, top, 10), (0, top + pitch, 6), (0, top + 2 * pitch, 2), (3, top + 2 * pitch, 7)],
    }
    assert drawn.height == top + 3 * pitch


def test_the_failing_step_is_marked_in_the_middle_of_its_column():
    """Step 8 is the eighth of ten columns."""
    drawn = heat_svg.panels(MADE)

    assert 'x1="75.0%" x2="75.0%"' in drawn.cells
    assert "step 8" in drawn.cells
    assert "failing" not in heat_svg.panels(HeatMap("t", 0.5, 1.0, 10, 10, ROWS, "f")).cells


def test_only_slow_rows_have_a_figure():
    """The largest multiple, and its step."""
    drawn = heat_svg.panels(MADE)

    assert re.findall(r">([^<>\n]+)</text>", drawn.figures) == ["6 times, step 9"]
    assert re.findall(r">([^<>\n]+)<(?:/text|tspan)", drawn.names) == ["rank 0", "rank 1", "gpu-017"]
    assert "ranks 2-9" in drawn.names


def test_the_legend_and_the_description_are_words():
    """What colors mean, where something is not known; the finding is the alternative text."""
    drawn = heat_svg.panels(MADE)

    assert [sign.words for sign in drawn.legend] == [
        "as fast as the median of the step",
        *(f"{LEVELS[level - 1]:g} times" for level in (1, 3, 5, 8)),
        "not logged",
    ]
    assert drawn.label == "Own work in a step of 10 ranks over steps. Slow: rank 1 from step 7 on. nine folded."


def test_hostile_names_stay_text():
    """They come from logs."""
    row = HeatRow("rank <b>", "00", 1.0, 1, 2, "</svg><script>")
    drawn = heat_svg.panels(HeatMap("t", 0.5, 1.0, 2, 2, (row,), "f"))

    assert "<script>" not in drawn.names
    assert "<b>" not in drawn.names
