"""PNG from our SVG: only of our own elements, with our own font, for any characters."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest
from PIL import Image

from bot.render.pictures.raster import png
from bot.render.pictures.svg import Canvas, document, element, text
from bot.render.pictures.text_metrics import ELLIPSIS, face, fitted, fitted_at_both_ends, width, wrapped

WITHOUT_FONTS = """
import sys
from bot.render.pictures.raster import png
from bot.render.pictures.svg import Canvas
canvas = Canvas(300, 40, "#ffffff", "#000000")
canvas.text(10, 20, "Rank 5 (node-b)", 20)
sys.stdout.buffer.write(png(canvas.document("x")))
"""


def drawn(words, size=20.0, *, bold=False):
    """A line of text as a picture in grey."""
    canvas = Canvas(600, 40, "#ffffff", "#000000")
    canvas.text(10, 20, words, size, bold=bold)
    return Image.open(io.BytesIO(png(canvas.document(words)))).convert("L")


def inked(image):
    """The columns between which there is ink."""
    left, _, right, _ = image.point(lambda value: 255 * (value < 128)).getbbox()
    return left, right


def test_text_is_drawn_on_a_machine_without_fonts(tmp_path):
    """No font of the system is looked for: the picture is the same with none."""
    config = tmp_path / "fonts.conf"
    config.write_text("<fontconfig></fontconfig>", encoding="utf-8")
    environment = {"FONTCONFIG_FILE": str(config), "HOME": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}
    ran = subprocess.run([sys.executable, "-c", WITHOUT_FONTS], env=environment, capture_output=True, check=True)
    image = Image.open(io.BytesIO(ran.stdout)).convert("L")
    left, right = inked(image)
    assert right - left == pytest.approx(width("Rank 5 (node-b)", 20), abs=4)
    canvas = Canvas(300, 40, "#ffffff", "#000000")
    canvas.text(10, 20, "Rank 5 (node-b)", 20)
    assert ran.stdout == png(canvas.document("x"))


@pytest.mark.parametrize(
    "words",
    [
        "\u4e2d\u6587\u8282\u70b9",
        "\U0001f525\U0001f468\u200d\U0001f469",
        "\u0645\u0631\u062d\u0628\u0627",
        "a\u0301\u0302",
        "\x00\ud800\uffff",
    ],
)
def test_letters_that_the_font_lacks_are_boxes(words):
    """CJK, emoji, Arabic, stacked marks, what no XML may hold: something is drawn, and nothing crashes."""
    left, right = inked(drawn(words))
    assert right > left


@pytest.mark.parametrize("bold", [False, True])
def test_widths_are_those_of_the_drawn_text(bold):
    """The measured width is the drawn width, up to a pixel or two of side bearing."""
    for words in ("Rank 17 (node-c): GPU memory", "13:47:20.8 \u00b7 36,000", "\u042f\u03a9\u1ebd WWW iii"):
        left, right = inked(drawn(words, bold=bold))
        assert right - left == pytest.approx(width(words, 20, bold=bold), abs=4)
    assert len(face(bold=bold).widths) > 1500


def test_texts_are_cut_to_their_room():
    """At the end, with an ellipsis; on several lines only the last one."""
    assert fitted("short", 100, 12) == "short"
    cut = fitted("a name that is far too long for its column", 100, 12)
    assert cut.endswith(ELLIPSIS)
    assert 80 < width(cut, 12) <= 100
    assert fitted("x", 0, 12) == ELLIPSIS
    assert fitted_at_both_ends("short", 100, 12) == "short"
    ends = fitted_at_both_ends("trainer-pool-b-worker-000", 100, 12)
    assert (ends[:4], ends[-4:], ends.count(ELLIPSIS)) == ("trai", "-000", 1)
    assert width(ends, 12) <= 100
    assert fitted_at_both_ends("x", 0, 12) == ELLIPSIS
    lines = wrapped("one two three four five six seven eight nine ten", 80, 12, 2)
    assert len(lines) == 2
    assert [line.endswith(ELLIPSIS) for line in lines] == [False, True]
    assert all(width(line, 12) <= 80 for line in lines)
    assert wrapped("", 80, 12, 2) == [""]


@pytest.mark.parametrize("name", ["image", "use", "script", "foreignObject", "feImage", "a", "filter", "svg:image"])
def test_what_is_no_drawing_of_ours_is_refused(name, tmp_path):
    """The renderer would open a file that an element names."""
    secret = tmp_path / "secret.png"
    Image.new("RGB", (9, 9), "red").save(secret)
    foreign = element(name, href=str(secret), width=9, height=9)
    with pytest.raises(ValueError, match="not a drawing of ours"):
        png(document(20, 20, "", "x", foreign))


@pytest.mark.parametrize(
    "broken",
    [
        "",
        "<svg",
        "no svg",
        "<!DOCTYPE svg [<!ENTITY a 'b'>]><svg/>",
        "<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'>\x00</svg>",
    ],
)
def test_what_is_no_svg_is_an_error(broken):
    """With the name that callers expect."""
    with pytest.raises(ValueError, match=r"."):
        png(broken)


def test_text_and_attributes_are_escaped():
    """Markup in either is text; only elements made here are markup."""
    made = element("rect", text("<b a='1'>&\"\x1b[31m\ud800"), fill="\"><script x='", class_=None, stroke_width=1.50)
    assert made == (
        '<rect fill="&#34;&gt;&lt;script x=&#39;" stroke-width="1.5">'
        "<text>&lt;b a=&#39;1&#39;&gt;&amp;&#34;\\ud800</text></rect>"
    )
