"""SVG to PNG, for places that show no SVG: Slack, and files that are named .png.

The font comes with this package and no other is looked for, so a picture is the same on every machine, also on one without any
font. Letters that it lacks are drawn as boxes.
"""

from __future__ import annotations

import re
from pathlib import Path

FONTS = Path(__file__).with_name("fonts")
REGULAR, SEMIBOLD = FONTS / "Inter-Regular.ttf", FONTS / "Inter-SemiBold.ttf"
# What our drawings consist of. The renderer opens files that other elements name, <image> above all.
_ELEMENTS = frozenset({"svg", "title", "style", "rect", "path", "line", "circle", "text", "tspan"})
_OPENED = re.compile(r"<(?!/)([^\s/>]*)")


def png(svg: str) -> bytes:
    """Return a drawing of ours as PNG, a pixel for each of its units; the same bytes each time.

    Raises:
        ValueError: it is no SVG, or has elements that no drawing of ours has.
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
