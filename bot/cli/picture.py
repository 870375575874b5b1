"""The picture that `diagnose --picture FILE` writes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bot.cli.console import refuse

if TYPE_CHECKING:
    from bot.diagnosis.diagnose import DiagnosisResult


def draw_picture(answer: DiagnosisResult, file: Path) -> None:
    """Draw the ranks over time to a file: PNG, or SVG by its name."""
    from bot.render.pictures.raster import png
    from bot.render.pictures.timeline import loads
    from bot.render.pictures.timeline_svg import draw

    try:
        svg = draw(loads(answer.timeline()))
        file.write_bytes(svg.encode() if file.suffix.lower() == ".svg" else png(svg))
    except (OSError, ValueError) as error:
        refuse(f"{file}: cannot write the picture: {getattr(error, 'strerror', None) or error}")
