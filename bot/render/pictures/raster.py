"""Converts SVG to PNG, for Slack and for .png files.

Only the font in this package is used, so a picture is the same on every machine. Missing glyphs are drawn as boxes.
"""

from __future__ import annotations

import re
from pathlib import Path

FONTS = Path(__file__).with_name("fonts")
REGULAR, SEMIBOLD = FONTS / "Inter-Regular.ttf", FONTS / "Inter-SemiBold.ttf"
# The elements of our drawings. Others, above all <image>, could make the renderer open files.
_ELEMENTS = frozenset({"svg", "title", "style", "rect", "path", "line", "circle", "text", "tspan"})
_OPENED = re.compile(r"<(?!/)([^\s/>]*)")


def png(svg: str) -> bytes:
    """Return one of our drawings as PNG, one pixel per unit. The output is deterministic.

    Raises:
        ValueError: it is not SVG, or has elements that our drawings do not use.
    """
    from resvg_py import svg_to_bytes  # noqa: PLC0415 - for pictures alone

    foreign = set(_OPENED.findall(svg)) - _ELEMENTS
    if foreign:
        raise ValueError(f"not a drawing of ours: it has the elements {', '.join(sorted(foreign))}")
    return svg_to_bytes(
        svg_string=svg,
        skip_system_fonts=True,
        font_files=[str(REGULAR), str(SEMIBOLD)],
        font_family="Inter",
        sans_serif_family="Inter",
    )
