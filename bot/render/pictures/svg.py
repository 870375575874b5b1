"""Builds SVG elements. All text and attributes are escaped here, so log text cannot become markup.

The output has no links, scripts, images or external references.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from markupsafe import Markup, escape

from bot.render.text_format import shown

Anchor = Literal["start", "middle", "end"]
Value = str | float | None

FONTS = "Inter, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'Liberation Sans', sans-serif"
MOST_TEXT = 600  # characters of one text
MIDDLE = 0.36  # share of the font size from the middle of capital letters to their baseline
STAR = "M0-7.5 2.2-2.5 7.6-2 3.5 1.5 4.8 6.8 0 4-4.8 6.8-3.5 1.5-7.6-2-2.2-2.5z"
CROSS = "M-3.5-3.5 3.5 3.5M3.5-3.5-3.5 3.5"
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # XML 1.0, production 2


def element(name: str, *content: str, **attributes: Value) -> Markup:
    """Return an element. `content`: markup is kept, text is escaped.

    `attributes`: underscores in names become hyphens, a trailing one is dropped; None omits the attribute.
    """
    pairs = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = "".join(_escaped(part) for part in content)
    return Markup(f"<{name}{pairs}>{inner}</{name}>" if inner else f"<{name}{pairs}/>")  # noqa: S704 - all escaped


def text(words: str, remark: str = "", **attributes: Value) -> Markup:
    """Return a text element. Invisible characters are made visible.

    `remark`: text that follows in a smaller font, wherever the main text ends.
    """
    after = [element("tspan", shown(remark[:MOST_TEXT]), dx=8)] if remark else []
    return element("text", shown(words[:MOST_TEXT]), *after, **attributes)


def joined(parts: Iterable[Markup]) -> Markup:
    """Join elements."""
    return Markup("\n").join(parts)


def document(width: float, height: float, style: str, title: str, *content: Markup) -> str:
    """Return a whole SVG file. `title`: its alternative text; `style`: our CSS."""
    return element(
        "svg",
        element("title", shown(title)),
        *([element("style", Markup(style))] if style else []),  # noqa: S704 - our own file
        *content,
        xmlns="http://www.w3.org/2000/svg",
        width=width,
        height=height,
        viewBox=f"0 0 {_number(width)} {_number(height)}",
        role="img",
        font_family=FONTS,
    )


class Canvas:
    """A drawing in pixels from the upper left, with its own colors, for pictures without a style sheet."""

    def __init__(self, width: float, height: float, ground: str, ink: str) -> None:
        self._size, self._ink, self._ground = (width, height), ink, ground
        self._parts = [element("rect", width=width, height=height, fill=ground)]

    def document(self, title: str) -> str:
        """Return the SVG."""
        return document(*self._size, "", title, *self._parts)

    def text(
        self, x: float, y: float, words: str, size: float = 13.0, colour: str = "", *,
        anchor: Anchor = "start", bold: bool = False, halo: bool = False,
    ) -> None:  # fmt: skip
        """Add a line of text, its capital letters centered on `y`. `halo`: keep a margin to what lies below."""
        outline = {"paint_order": "stroke", "stroke": self._ground, "stroke_width": "4", "stroke_linejoin": "round"}
        self._parts.append(
            text(
                words, x=x, y=y + MIDDLE * size, font_size=size, fill=colour or self._ink,
                text_anchor=None if anchor == "start" else anchor, font_weight="600" if bold else None,
                **(outline if halo else {}),
            )
        )  # fmt: skip

    def line(self, points: Iterable[tuple[float, float]], colour: str, width: float = 1.0, dashes: str = "") -> None:
        """Add a line through points; nothing for fewer than two."""
        path = "L".join(f"{_number(x)} {_number(y)}" for x, y in points)
        if "L" in path:
            self._parts.append(
                element(
                    "path", d=f"M{path}", fill="none", stroke=colour, stroke_width=width, stroke_linejoin="round",
                    stroke_dasharray=dashes or None,
                )
            )  # fmt: skip

    def dot(self, x: float, y: float, colour: str, radius: float) -> None:
        """Add a point with a margin to what lies below."""
        self._parts.append(element("circle", cx=x, cy=y, r=radius, fill=colour, stroke=self._ground, stroke_width=1.2))

    def box(self, x: float, y: float, width: float, height: float, colour: str, *, radius: float = 0.0) -> None:
        """Add a filled rectangle."""
        self._parts.append(element("rect", x=x, y=y, width=width, height=height, rx=radius or None, fill=colour))


def _value(value: str | float) -> str:
    return _escaped(value) if isinstance(value, str) else _number(value)


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _escaped(words: str) -> str:
    """Return text escaped for XML; markup unchanged."""
    return words if isinstance(words, Markup) else str(escape(_NO_XML.sub("\ufffd", words)))
