"""The colours of drawings, light and dark, and the style sheet that all timelines and curves share.

Pages use CSS variables, so that the reader's color scheme decides. Standalone pictures have literal colors, because SVG
renderers do not support variables.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

Theme = Literal["light", "dark"]

_VARIABLE = re.compile(r"var\(--([a-z]+)\)")


@dataclass(frozen=True, slots=True)
class Palette:
    """Colours of one theme as #rrggbb. Blue and vermilion are from Okabe and Ito's color-blind-safe palette."""

    ground: str
    ink: str
    faint: str
    rule: str
    lane: str
    usual: str
    suspect: str
    alarm: str
    cause: str
    green: str
    pink: str
    thin: str


LIGHT = Palette(
    ground="#ffffff", ink="#1d1c1d", faint="#595d64", rule="#d9dce1", lane="#eceef2", usual="#0072b2", suspect="#d55e00",
    alarm="#b03a00", cause="#f0c800", green="#008060", pink="#b3548f", thin="#8fa3b5",
)  # fmt: skip
DARK = Palette(
    ground="#14171a", ink="#e8e8e8", faint="#a9adb4", rule="#3a3f47", lane="#24282e", usual="#56b4e9", suspect="#ff8a3d",
    alarm="#ff9a5c", cause="#f0e442", green="#35b58f", pink="#d98bbb", thin="#5d7185",
)  # fmt: skip
# A standalone picture is shown on other backgrounds: Slack's dark one is lighter than that of our pages.
PICTURES: Mapping[Theme, Palette] = {
    "light": LIGHT,
    "dark": replace(DARK, ground="#1a1d21", lane="#2a2e34", rule="#4a4f57"),
}


@dataclass(frozen=True, slots=True)
class TextSizes:
    """Font sizes in pixels."""

    text: float
    small: float


PAGE_TEXT = TextSizes(12, 11)
PICTURE_TEXT = TextSizes(13, 12)


@cache
def style_sheet() -> str:
    """Return the style of timelines and curves, with colors and sizes as CSS variables."""
    return Path(__file__).with_name("drawing.css").read_text(encoding="utf-8")


def page_style() -> str:
    """Return the style sheet for a page, which follows the reader's color scheme."""
    sizes = f"--text: {PAGE_TEXT.text}px; --small: {PAGE_TEXT.small}px;"
    dark = f"@media (prefers-color-scheme: dark) {{ :root {{ {_variables(DARK)}}} }}"
    return f":root {{ {_variables(LIGHT)}{sizes} }}\n{dark}\n{style_sheet()}"


def picture_style(theme: Theme) -> str:
    """Return the style sheet for a standalone picture, without variables."""
    values = asdict(PICTURES[theme]) | {name: f"{size:g}px" for name, size in asdict(PICTURE_TEXT).items()}
    return _VARIABLE.sub(lambda found: values[found[1]], style_sheet())


def _variables(palette: Palette) -> str:
    return "".join(f"--{name}: {colour}; " for name, colour in asdict(palette).items())


def rgb(colour: str) -> tuple[float, float, float]:
    """Return #rrggbb as three numbers from 0 to 1."""
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return red, green, blue


def mixed(colour: str, other: str, part: float = 0.5) -> str:
    """Return a color between two, `part` (0 to 1) of the way to the other."""
    values = (round(255 * (a + (b - a) * part)) for a, b in zip(rgb(colour), rgb(other), strict=True))
    return "#" + "".join(f"{value:02x}" for value in values)


def luminance(colour: str) -> float:
    """Return the relative luminance, 0 to 1 (WCAG 2)."""
    red, green, blue = (
        value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in rgb(colour)
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
