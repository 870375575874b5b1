"""Pictures: they decode, show something, are small, the same each time, and no text in them can do harm."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from PIL import Image

from bot.render.timeline_png import MOST_ALT, WIDTH, alt_text, clock, draw, ticks
from kb.timeline.rows import Mishap
from kb.timeline.timeline import COLUMNS, Mark, Row, Timeline
from tests.support.paths import DEMO

NOON = 1_772_366_400.0  # 2026-03-01 12:00:00 UTC
HOSTILE = "$\\frac{a}{b$ \u4e2d\u6587 \U0001f525 <b>&amp; ^_{}%#~\\"


def row(label="rank 0", until=200, **more):
    """A row that writes up to a column."""
    return Row(label, heard="9" * until + "0" * (COLUMNS - until), last=NOON + until, step=until, **more)


def picture(*rows, **more):
    """A timeline of four minutes."""
    told = {"finding": "Rank 0 fell silent first, 12 s before the others", "start": NOON, "end": NOON + 240.0}
    return Timeline(**{**told, "rows": rows or (row(why="suspect", suspect=True), row("rank 1", 220)), **more})


def pixels(png):
    """The picture's size and how many pixels have each colour."""
    image = Image.open(io.BytesIO(png)).convert("RGB")
    return image.size, {colour: count for count, colour in image.getcolors(1 << 24)}


@pytest.mark.parametrize(("theme", "ground", "suspect"), [("light", 0xFFFFFF, 0xD55E00), ("dark", 0x1A1D21, 0xFF8A3D)])
def test_a_picture_has_its_own_ground_and_colours(theme, ground, suspect):
    """It decodes, is 1,200 pixels wide, its ground is the theme's, and the suspect's row is in its colour."""
    png = draw(picture(), theme)
    (width, _), colours = pixels(png)
    assert width == WIDTH
    found = {red << 16 | green << 8 | blue: count for (red, green, blue), count in colours.items()}
    assert max(found, key=found.__getitem__) == ground
    assert found[suspect] > 5_000


def test_the_same_timeline_is_the_same_picture():
    """Byte for byte; another one is another."""
    assert draw(picture()) == draw(picture())
    assert draw(picture()) != draw(picture(finding="something else"))


def test_the_picture_grows_with_its_rows_up_to_a_bound():
    """The most rows that there can be stay small enough for a chat."""
    rows = tuple(
        row(f"rank {at}", 100 + at, error=Mishap(NOON + at, "Boom"), why="behind" * (at < 12)) for at in range(96)
    )
    marks = tuple(Mark("attempt", NOON + 9.0 * at, f"attempt {at}") for at in range(16))
    png = draw(picture(*rows, marks=marks, notes=("a note",) * 8, folded="much"))
    (_, height), _ = pixels(png)
    assert 700 < height < 1_700
    assert len(png) < 300_000


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_text_is_read_as_markup_and_none_warns(theme):
    """Dollars, backslashes and letters that the font lacks are drawn as they are, or as a box; warnings are errors here."""
    odd = row(HOSTILE, why="suspect", suspect=True, node=HOSTILE, error=Mishap(NOON, HOSTILE, cause=True))
    hostile = picture(
        odd,
        row(HOSTILE * 9),
        finding=HOSTILE * 8,
        job=HOSTILE,
        notes=(HOSTILE * 9,),
        marks=(Mark("cause", NOON + 9.0, HOSTILE),),
    )
    (width, height), _ = pixels(draw(hostile, theme))
    assert (width, height < 500) == (WIDTH, True)


@pytest.mark.parametrize(
    "odd",
    [
        Timeline("Not enough was seen to say anything"),
        Timeline("", rows=(Row("rank 0"), Row("rank 1", step=7, why="behind", error=Mishap(None, "Boom")))),
        picture(row(), end=NOON + 1e-6),
        picture(row(), start=-1e18, end=1e18),
        picture(Row("rank 0", heard="12"), Row("", heard="0" * 999)),
        picture(row(error=Mishap(1e300, "Boom"), first=-1e300)),
    ],
    ids=["empty", "no times", "no span", "all time", "levels", "out of the calendar"],
)
def test_whatever_is_told_can_be_drawn(odd):
    """Values at the edges give a picture that is not blank."""
    _, colours = pixels(draw(odd))
    assert len(colours) > 1 or not odd.finding


def test_the_words_tell_the_finding_and_its_numbers():
    """Who cannot see the picture hears who stopped first and when."""
    one = row(why="silent first", node="a", error=Mishap(NOON + 7.0, "Boom"))
    made = picture(
        one, row("rank 1", 220), marks=(Mark("end", NOON + 240.0, "end of the job"),), notes=("no log of rank 2",)
    )
    assert alt_text(made) == (
        "Rank 0 fell silent first, 12 s before the others. "
        "Log activity of 2 ranks, nodes and logs, 2026-03-01 12:00:00 to 12:04:00 UTC. "
        "rank 0 (a): silent first, last line 12:03:20, step 200, first error 12:00:07 Boom. "
        "end of the job 12:04:00. no log of rank 2."
    )
    assert len(alt_text(replace(made, notes=("x" * 900,) * 8))) == MOST_ALT


@pytest.mark.parametrize("span", [1.0, 60.0, 3600.0, 86400.0, 40 * 86400.0])
def test_ticks_are_few_and_round(span):
    """At most eight, inside the span."""
    found = ticks(NOON + 0.3, NOON + 0.3 + span)
    assert 1 <= len(found) <= 8
    assert all(NOON < one <= NOON + 0.3 + span for one in found)


def test_a_time_out_of_the_calendar_is_a_question_mark():
    """No error for a number that is no time."""
    assert [clock(time) for time in (NOON, 1e300, float("nan"))] == ["12:00:00", "?", "?"]


def test_diagnose_writes_the_picture(signalbox, tmp_path):
    """`--picture FILE` beside the answer; where it cannot be written it says so, and with --each it is refused."""
    file = tmp_path / "incident.png"
    ran = signalbox("diagnose", "--bundle", DEMO, "--no-store", "--picture", file)
    assert (ran.status, pixels(file.read_bytes())[0][0]) == (0, WIDTH)
    ran = signalbox("diagnose", "--bundle", DEMO, "--no-store", "--picture", tmp_path / "none" / "incident.png")
    assert (ran.status, "the picture cannot be written: No such file or directory" in ran.err) == (2, True)
    ran = signalbox("diagnose", "--each", DEMO, "--picture", file)
    assert (ran.status, "--picture" in ran.err and "one run" in ran.err) == (2, True)
