"""Pictures: they decode, show something, are small, the same each time, and no text in them can do harm."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from PIL import Image

from bot.render.pictures.raster import png
from bot.render.pictures.text_metrics import width
from bot.render.pictures.timeline_svg import LEFT, RIGHT, WIDTH, draw
from bot.render.pictures.timeline_words import MOST_ALT, alt_text, clock, ticks
from bot.render.theme import PICTURE_TEXT
from kb.timeline.picture import COLUMNS, Mark, Timeline, TimelineRow
from kb.timeline.rows import RowError
from tests.support.paths import DEMO

NOON = 1_772_366_400.0  # 2026-03-01 12:00:00 UTC
SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "$\\frac{a}{b$ \u4e2d\u6587 \U0001f525 <b>&amp; ^_{}%#~\\"


def row(label="rank 0", until=200, **more):
    """A row that writes up to a column."""
    return TimelineRow(label, heard="9" * until + "0" * (COLUMNS - until), last=NOON + until, step=until, **more)


def picture(*rows, **more):
    """A timeline of four minutes."""
    told = {"finding": "Rank 0 fell silent first, 12 s before the others", "start": NOON, "end": NOON + 240.0}
    return Timeline(**{**told, "rows": rows or (row(why="suspect", suspect=True), row("rank 1", 220)), **more})


def pixels(content):
    """The picture's size and how many pixels have each colour."""
    image = Image.open(io.BytesIO(content)).convert("RGB")
    return image.size, {colour: count for count, colour in image.getcolors(1 << 24)}


@pytest.mark.parametrize(("theme", "ground", "suspect"), [("light", 0xFFFFFF, 0xD55E00), ("dark", 0x1A1D21, 0xFF8A3D)])
def test_a_picture_has_its_own_ground_and_colours(theme, ground, suspect):
    """It decodes, is 1,200 pixels wide, its ground is the theme's, and the suspect's row is in its colour."""
    (width, _), colours = pixels(png(draw(picture(), theme)))
    assert width == WIDTH
    found = {red << 16 | green << 8 | blue: count for (red, green, blue), count in colours.items()}
    assert max(found, key=found.__getitem__) == ground
    assert found[suspect] > 5_000


def test_the_same_timeline_is_the_same_picture():
    """Byte for byte; another one is another."""
    assert png(draw(picture())) == png(draw(picture()))
    assert png(draw(picture())) != png(draw(picture(finding="something else")))


def test_the_picture_grows_with_its_rows_up_to_a_bound():
    """The most rows that there can be stay small enough for a chat."""
    rows = tuple(
        row(f"rank {at}", 100 + at, error=RowError(NOON + at, "Boom"), why="behind" * (at < 12)) for at in range(96)
    )
    marks = tuple(Mark("attempt", NOON + 9.0 * at, f"attempt {at}") for at in range(16))
    content = png(draw(picture(*rows, marks=marks, notes=("a note",) * 8, folded="much")))
    (_, height), _ = pixels(content)
    assert 700 < height < 1_700
    assert len(content) < 300_000


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_text_is_read_as_markup_and_none_warns(theme):
    """Tags, entities, backslashes and letters that the font lacks are drawn as they are, or as a box; warnings are errors here."""
    odd = row(HOSTILE, why="suspect", suspect=True, node=HOSTILE, error=RowError(NOON, HOSTILE, cause=True))
    hostile = picture(
        odd,
        row(HOSTILE * 9),
        finding=HOSTILE * 8,
        job=HOSTILE,
        notes=(HOSTILE * 9,),
        marks=(Mark("cause", NOON + 9.0, HOSTILE),),
    )
    (width, height), _ = pixels(png(draw(hostile, theme)))
    assert (width, height < 500) == (WIDTH, True)


@pytest.mark.quick("empty", "no times", "all time")
@pytest.mark.parametrize(
    "odd",
    [
        Timeline("Not enough evidence to reach a verdict"),
        Timeline(
            "", rows=(TimelineRow("rank 0"), TimelineRow("rank 1", step=7, why="behind", error=RowError(None, "Boom")))
        ),
        picture(row(), end=NOON + 1e-6),
        picture(row(), start=-1e18, end=1e18),
        picture(TimelineRow("rank 0", heard="12"), TimelineRow("", heard="0" * 999)),
        picture(row(error=RowError(1e300, "Boom"), first=-1e300)),
    ],
    ids=["empty", "no times", "no span", "all time", "levels", "out of the calendar"],
)
def test_whatever_is_reported_can_be_drawn(odd):
    """Values at the edges give a picture that is not blank."""
    _, colours = pixels(png(draw(odd)))
    assert len(colours) > 1 or not odd.finding


def test_the_words_tell_the_finding_and_its_numbers():
    """Who cannot see the picture hears who stopped first and when."""
    one = row(why="silent first", node="a", error=RowError(NOON + 7.0, "Boom"))
    made = picture(
        one, row("rank 1", 220), marks=(Mark("end", NOON + 240.0, "end of the job"),), notes=("no log of rank 2",)
    )
    assert alt_text(made) == (
        "Rank 0 fell silent first, 12 s before the others. "
        "Log activity of 2 ranks, 2026-03-01 12:00:00 to 12:04:00 UTC. "
        "rank 0 (a): silent first, last line 12:03:20, step 200, first error 12:00:07 Boom. "
        "End of the job 12:04:00. No log of rank 2."
    )
    assert len(alt_text(replace(made, notes=("x" * 900,) * 8))) == MOST_ALT
    assert "to 12:04:00. " in alt_text(replace(made, zone="unknown"))


def test_ranks_of_which_the_same_is_to_be_said_share_a_sentence():
    """Eight ranks of a lost node are one sentence, not six of eight; one that ended elsewhere has its own."""
    lost = [row(f"rank {number}", 100, why="suspect", node="gpu-6") for number in range(48, 56)]
    told = alt_text(picture(*lost, row("rank 7", 120, why="suspect", node="gpu-6")))
    assert "ranks 48-55 (gpu-6): suspect, last line 12:01:40" in told
    assert told.count("suspect") == 2


@pytest.mark.parametrize("span", [1.0, 60.0, 3600.0, 86400.0, 40 * 86400.0])
def test_ticks_are_few_and_round(span):
    """At most eight, inside the span."""
    found = ticks(NOON + 0.3, NOON + 0.3 + span)
    assert 1 <= len(found) <= 8
    assert all(NOON < value <= NOON + 0.3 + span for value in found)


def test_a_time_out_of_the_calendar_is_a_question_mark():
    """A number outside the calendar is no error."""
    assert [clock(time) for time in (NOON, 1e300, float("nan"))] == ["12:00:00", "?", "?"]


def elements(svg, tag):
    """The elements of a kind, in their order: attributes and text."""
    return [(dict(found.attrib), found.text) for found in ET.fromstring(svg).iter(f"{SVG}{tag}")]  # noqa: S314 - our own


def test_a_row_ends_at_its_time():
    """Its bar fills the columns up to its last line, in the suspect's colour, and ends with the mark of the last line."""
    svg = draw(picture())
    paths = {found["class"]: found["d"] for found, _ in elements(svg, "path") if "class" in found}
    odd, usual = (re.findall(r"M(\d+) \d+h(\d+)v", paths[name]) for name in ("s9", "u9"))
    assert (odd, usual) == ([("0", "200")], [("0", "220")])  # columns of 240
    lasts = [float(found["x1"].removesuffix("%")) for found, _ in elements(svg, "line") if found.get("class") == "last"]
    assert lasts == [
        pytest.approx(100 * 200 / 240, abs=0.01),
        pytest.approx(100 * 220 / 240, abs=0.01),
        3.0,
    ]  # and the legend


def test_the_suspect_is_drawn_up_to_its_last_line_and_no_further():
    """In pixels: its colour ends with its last line."""
    image = Image.open(io.BytesIO(png(draw(picture())))).convert("RGB")
    row_of = {y for y in range(image.height) if image.getpixel((LEFT + 1, y)) == (0xD5, 0x5E, 0x00)}
    middle = sorted(row_of)[len(row_of) // 4]
    orange = [x for x in range(LEFT, RIGHT) if image.getpixel((x, middle)) == (0xD5, 0x5E, 0x00)]
    assert orange[0] == LEFT
    assert orange[-1] == pytest.approx(LEFT + (RIGHT - LEFT) * 200 / 240, abs=3)


def test_the_picture_says_everything_in_words():
    """Title, job, time range, names, nodes, times, values, legend, folded rows and notes."""
    odd = row("rank 7", why="suspect", suspect=True, node="node-b", error=RowError(NOON + 200.0, "Boom", cause=True))
    failed = row("rank 1", 220, node="node-a", why="behind", error=RowError(NOON + 210.0, "Late boom"))
    svg = draw(
        picture(
            odd, failed, job="lm-7b", began=NOON - 60.0, folded="8 rows are folded", notes=("no log of rank 2",),
            marks=(Mark("cause", NOON + 200.0, "first cause"), Mark("end", NOON + 240.0, "end of the job")),
        )
    )  # fmt: skip
    words = [text for tag in ("text", "tspan") for _, text in elements(svg, tag)]
    for wanted in (
        "Rank 0 fell silent first, 12 s before the others",
        "lm-7b  ·  2026-03-01 12:00:00 to 12:04:00 UTC  ·  it ran for 00:01:00 before",
        "rank 7", "node-b", "rank 1", "node-a", "first cause 12:03:20", "end of the job 12:04:00", "silent for 40 s",
        "12:03:20 · 200", "12:03:40 · 220", "12:03:30 Late boom", "last line · step logged", "writes", "a suspect writes",
        "last line", "first cause", "first error", "8 rows are folded", "no log of rank 2",
    ):  # fmt: skip
        assert wanted in words, wanted
    assert elements(svg, "title")[0][1].startswith("Rank 0 fell silent first, 12 s before the others. Log activity of")


def test_no_two_names_of_instants_overlap():
    """Instants that are near each other have their names one above the other, and inside the picture."""
    marks = tuple(Mark("attempt", NOON + 7.0 * at, f"attempt {at}") for at in range(16))
    taken = []
    for found, words in elements(draw(picture(marks=marks)), "text"):
        if found.get("class", "").startswith("mark"):
            wide = width(words, PICTURE_TEXT.small)
            x = LEFT + (RIGHT - LEFT) * float(found["x"].removesuffix("%")) / 100 + float(found["dx"])
            taken.append((x - wide if "end" in found["class"] else x, wide, float(found["y"])))
    assert len(taken) == 16
    for at, (x, wide, y) in enumerate(taken):
        assert x > 0
        assert x + wide < WIDTH
        assert all(
            y != other_y or x + wide < other or other + other_wide < x for other, other_wide, other_y in taken[:at]
        )


def test_a_drawing_is_one_svg_without_anything_foreign():
    """Whatever its texts hold: well-formed, no element but our own, nothing that is loaded or run."""
    hostile = HOSTILE + "\x00\x1b]8;;\ud800<script>alert(1)</script><image href='/etc/passwd'/>]]>&xxe;<!ENTITY"
    odd = row(hostile, why="suspect", suspect=True, node=hostile, error=RowError(NOON + 9.0, hostile))
    svg = draw(
        picture(
            odd,
            row("rank 1", 220, node=hostile),
            finding=hostile,
            job=hostile,
            notes=(hostile,),
            marks=(Mark("x y", NOON + 9.0, hostile),),
        )
    )
    tree = ET.fromstring(svg)  # noqa: S314 - our own
    assert {found.tag.removeprefix(SVG) for found in tree.iter()} == {
        "svg",
        "title",
        "style",
        "rect",
        "path",
        "line",
        "text",
        "tspan",
    }
    names = {name.rpartition("}")[2] for found in tree.iter() for name in found.attrib}
    assert not [name for name in names if name == "href" or name.startswith("on")]
    assert pixels(png(svg))[0][0] == WIDTH


def test_diagnose_writes_the_picture(signalbox, tmp_path):
    """`--picture FILE` is written in addition to the answer; a file that cannot be written is an error, and --each refuses the option."""
    file = tmp_path / "incident.png"
    ran = signalbox("diagnose", "--bundle", DEMO, "--no-store", "--picture", file)
    assert (ran.status, pixels(file.read_bytes())[0][0]) == (0, WIDTH)
    drawing = tmp_path / "incident.SVG"
    ran = signalbox("diagnose", "--bundle", DEMO, "--no-store", "--picture", drawing)
    assert (ran.status, png(drawing.read_text(encoding="utf-8"))) == (0, file.read_bytes())
    ran = signalbox("diagnose", "--bundle", DEMO, "--no-store", "--picture", tmp_path / "none" / "incident.png")
    assert (ran.status, "cannot write the picture: No such file or directory" in ran.err) == (2, True)
    ran = signalbox("diagnose", "--each", DEMO, "--picture", file)
    assert (ran.status, "--picture" in ran.err and "cannot be combined with --each" in ran.err) == (2, True)
