"""Text widths in the font of our pictures, read from the font's tables (OpenType 1.9: cmap, hhea, hmtx)."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bot.render.pictures.raster import REGULAR, SEMIBOLD
from bot.render.text_format import shown

ELLIPSIS = "…"


@dataclass(frozen=True, slots=True)
class Face:
    """Advance widths by code point, relative to the font size; `missing`: of the box for an unknown character."""

    widths: Mapping[int, float]
    missing: float

    def width(self, text: str) -> float:
        """Return the width of a text, relative to the font size."""
        return sum(self.widths.get(ord(letter), self.missing) for letter in text)


def width(text: str, size: float, *, bold: bool = False) -> float:
    """Return the width of a text in pixels, at a font size in pixels."""
    return face(bold=bold).width(text) * size


def fitted(text: str, room: float, size: float, *, bold: bool = False) -> str:
    """Return the text, truncated to so many pixels."""
    whole = shown(text)
    if width(whole, size, bold=bold) <= room:
        return whole
    left, kept = room - width(ELLIPSIS, size, bold=bold), 0
    for letter in whole:
        left -= width(letter, size, bold=bold)
        if left < 0:
            break
        kept += 1
    return whole[:kept].rstrip() + ELLIPSIS


def fitted_at_both_ends(text: str, room: float, size: float, *, bold: bool = False) -> str:
    """Return text without its middle, so that it fits: names of nodes often differ in their last characters only."""
    whole = shown(text)
    if width(whole, size, bold=bold) <= room:
        return whole
    for kept in range(len(whole) - 1, 0, -1):
        tail = (kept + 1) // 2
        found = whole[: kept - tail] + ELLIPSIS + whole[len(whole) - tail :]
        if width(found, size, bold=bold) <= room:
            return found
    return ELLIPSIS


def wrapped(text: str, room: float, size: float, most: int, *, bold: bool = False) -> list[str]:
    """Return the text wrapped to at most so many lines, the last one truncated."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if not lines[-1] or len(lines) == most or width(longer, size, bold=bold) <= room:
            lines[-1] = longer
        else:
            lines.append(word)
    return [fitted(line, room, size, bold=bold) for line in lines]


@cache
def face(*, bold: bool = False) -> Face:
    """Return the font's regular or its bold face."""
    return _read(SEMIBOLD if bold else REGULAR)


def _read(file: Path) -> Face:
    """Return the widths from our TrueType file, whose cmap has a subtable of format 4."""
    data = file.read_bytes()
    (count,) = struct.unpack_from(">H", data, 4)
    tables = {tag: start for tag, _, start, _ in struct.iter_unpack(">4sIII", data[12 : 12 + 16 * count])}
    (units,) = struct.unpack_from(">H", data, tables[b"head"] + 18)
    (long,) = struct.unpack_from(">H", data, tables[b"hhea"] + 34)
    advances = [width for width, _ in struct.iter_unpack(">Hh", data[tables[b"hmtx"] : tables[b"hmtx"] + 4 * long])]
    glyphs = _glyphs(data, tables[b"cmap"])
    widths = {code: advances[min(glyph, long - 1)] / units for code, glyph in glyphs.items()}
    return Face(widths, advances[0] / units)


def _glyphs(data: bytes, cmap: int) -> dict[int, int]:
    """Return code point → glyph, from the subtable of format 4."""
    (count,) = struct.unpack_from(">H", data, cmap + 2)
    offsets = [cmap + struct.unpack_from(">HHI", data, cmap + 4 + 8 * at)[2] for at in range(count)]
    table = next(at for at in offsets if struct.unpack_from(">H", data, at)[0] == 4)
    (twice,) = struct.unpack_from(">H", data, table + 6)
    segments, at = twice // 2, table + 14
    ends = struct.unpack_from(f">{segments}H", data, at)
    starts = struct.unpack_from(f">{segments}H", data, at + twice + 2)
    deltas = struct.unpack_from(f">{segments}H", data, at + 2 * twice + 2)
    ranges = at + 3 * twice + 2
    glyphs = {}
    for segment in range(segments):
        (offset,) = struct.unpack_from(">H", data, ranges + 2 * segment)
        for code in range(starts[segment], ends[segment] + 1):
            glyph = code
            if offset:
                place = ranges + 2 * segment + offset + 2 * (code - starts[segment])
                (glyph,) = struct.unpack_from(">H", data, place)
            if glyph := (glyph + deltas[segment]) & 0xFFFF if glyph or not offset else 0:
                glyphs[code] = glyph
    glyphs.pop(0xFFFF, None)
    return glyphs
