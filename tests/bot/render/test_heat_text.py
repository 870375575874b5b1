"""The heat map in a terminal: the rank and the steps are those that were made slow, at any width, with and without colour."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from bot.render.heat_text import heat_lines
from bot.render.terminal import lines, plain, render
from bot.render.text_page import Reading
from kb.report import Suspect
from kb.timeline.heat import heat_map
from tests.kb.timeline.test_heat import report, run
from tests.support.bot_samples import FALLEN_GPU


def drawn(
    factor, width: int = 80, *, whole: bool = False, suspect: int | None = None, iteration=None, **made
) -> list[str]:
    """The lines of the map of a made run."""
    suspects = () if suspect is None else (Suspect("rank", rank=suspect),)
    found = heat_map(run(factor, **made), report(*suspects, iteration=iteration))
    assert found is not None
    return [str(line) for line in heat_lines(found, width, whole=whole)]


def cells(line: str, name: str) -> str:
    """The cells of a row of this name."""
    assert line[3:].startswith(f"{name} ")
    return line[3 + len(name) :].strip().split(" ")[0]


def test_the_whole_map_of_four_ranks():
    """Rank 2 was made twice as slow in steps 21 to 40; it is marked as the suspect, and the failing step below."""
    shown = drawn(lambda rank, step: 2.0 if rank == 2 and step >= 21 else 1.0, ranks=4, suspect=2, iteration=36)

    assert shown == [
        "   rank 0 ........................................",
        "   rank 1 ........................................",
        " > rank 2 ....................******************** 2x at 21",
        "   rank 3 ........................................",
        "          step 1                                40",
        "                             step 36: failed ^",
        "          . as the median   - from 1.1 times   + 1.35   * 1.75   # 2.5",
    ]


TRUTHS = [  # who is slow in which steps and by how much; the run; the rank and its cells
    (lambda rank, _: 1.5 if rank == 0 else 1.0, {"ranks": 4}, 0, "+" * 40),
    (lambda rank, step: 3.0 if rank == 7 and 11 <= step <= 18 else 1.0, {}, 7, "." * 10 + "#" * 8 + "." * 22),
    (lambda rank, step: 1.8 if rank == 2 and step <= 12 else 1.0, {}, 2, "*" * 12 + "." * 28),
    (lambda rank, step: 2.0 if rank == 6 and step >= 200 else 1.0, {"steps": 400, "every": 10}, 6, "." * 19 + "*" * 21),
]  # fmt: skip


@pytest.mark.parametrize(("factor", "made", "rank", "expected"), TRUTHS)
def test_the_slow_rank_and_the_steps_in_which_it_was_slow(factor, made, rank, expected):
    """One character a logged step while they fit; all other ranks are as the median."""
    rows = [line for line in drawn(factor, **made) if line[3:].startswith("rank ")]

    assert {cells(line, f"rank {at}") for at, line in enumerate(rows) if at != rank} == {"." * 40}
    assert cells(rows[rank], f"rank {rank}") == expected


def test_few_steps_have_wide_cells_and_many_share_one():
    """A single slow step among those that share a cell is still seen."""
    few = drawn(lambda rank, step: 2.0 if rank == 1 and step >= 5 else 1.0, ranks=4, steps=8)
    shared = drawn(lambda rank, step: 2.0 if rank == 1 and (step >= 61 or step == 7) else 1.0, ranks=4, steps=100)

    assert cells(few[1], "rank 1") == "...." * 4 + "****" * 4
    assert cells(shared[1], "rank 1") == "...*" + "." * 26 + "*" * 20  # two steps a cell: 7 and 8, and 61 on


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_rows_fit_the_width(width):
    """With many columns and long figures."""
    found = drawn(lambda rank, step: 2.0 if rank == 3 and step > 50_000 else 1.0, width, steps=100_000, every=100)

    assert max(len(line) for line in found if line[3:].startswith("rank ")) <= width


def test_ranks_that_never_were_slow_share_a_row():
    """In a report that is not whole; none is hidden in one that is."""
    slow = drawn(lambda rank, _: 2.0 if rank == 5 else 1.0, ranks=16)

    assert [line[:21].strip() for line in slow[:2]] == ["rank 5         ***", "15 other ranks ..."]
    assert len(drawn(lambda rank, _: 2.0 if rank == 5 else 1.0, ranks=16, whole=True)) == 16 + 2


def test_a_step_without_a_value_is_blank():
    """And the legend says so."""
    evidence = run(lambda rank, _: 2.0 if rank == 1 else 1.0, ranks=4)
    first, *rest = evidence.streams
    short = replace(first, series=replace(first.series, points=first.series.points[:30]))
    found = heat_map(replace(evidence, streams=(short, *rest)), report())
    assert found is not None
    shown = [str(line) for line in heat_lines(found, 80)]

    assert shown[0] == f"   rank 0 {'.' * 30}{' ' * 10}"
    assert shown[-1].endswith("blank not logged")


def test_the_report_shows_it_and_colours_add_nothing_but_colour():
    """The same characters in a pipe and on a terminal; slow cells have colors there."""
    found = heat_map(run(lambda rank, _: 3.0 if rank == 1 else 1.0, ranks=4), report(Suspect("rank", rank=1)))
    reading = Reading(heat=found)
    out = io.StringIO()
    render(FALLEN_GPU, Console(file=out, force_terminal=True, color_system="256", width=80), reading)
    console = io.StringIO()
    render(FALLEN_GPU, Console(file=console, width=80, color_system=None), reading)

    assert "Own work in a step of 4 ranks, slow: rank 1 in all steps, up to 3 times the" in plain(
        FALLEN_GPU, 80, reading
    )
    assert console.getvalue() == plain(FALLEN_GPU, 80, reading)
    assert f"\x1b[1;97;48;5;160m{'#' * 40}\x1b[0m" in out.getvalue()


def test_it_gives_way_on_a_small_screen():
    """The cause, the first step and the evidence stay."""
    found = heat_map(run(lambda rank, _: 3.0 if rank == 1 else 1.0), report(Suspect("rank", rank=1)))
    small = "\n".join(str(line) for line in lines(FALLEN_GPU, 80, Reading(heat=found, rows=20)))

    assert "####" not in small
    assert "Do first" in small
