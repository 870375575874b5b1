"""Fits an answer to the height of a terminal, so that its first line is still on the screen when the prompt returns."""

from __future__ import annotations

from collections.abc import Sequence

from bot.render.text_page import OutputLine, Weight
from bot.render.text_wrap import columns


def fitted(lines: Sequence[OutputLine], rows: int | None, width: int) -> tuple[list[OutputLine], list[Weight]]:
    """Return the lines that fit into `rows` (None: all) of a screen, the least needed dropped first, and what was dropped.

    What was dropped is in the order of need; if it is more than the versions, a row is left for a note. Lines of weight 0
    stay, even if they alone need more rows. Commands are not wrapped, so the terminal breaks those that are longer than
    `width`.
    """
    kept, cut = list(lines), set[Weight]()
    if rows is None or _height(kept, width) <= rows:
        return kept, []
    for weight in sorted({line.weight for line in kept if line.weight}, reverse=True):
        room = rows - (bool(cut) and min(cut) < Weight.VERSIONS)
        if cut and _height(kept, width) <= room:
            break
        if weight < Weight.REASON and (shorter := _with_less_evidence(kept, rows - 1, width)) is not None:
            kept = shorter
            cut.add(Weight.EVIDENCE)
            break
        kept = _tidied([line for line in kept if line.weight < weight])
        cut |= {line.weight for line in lines if line.weight == weight and str(line)}
    return kept, sorted(cut)


def _with_less_evidence(lines: Sequence[OutputLine], rows: int, width: int) -> list[OutputLine] | None:
    """Return the lines with as much of the evidence, from its beginning, as there is room for; None if that is too little."""
    evidence = [place for place, line in enumerate(lines) if line.weight == Weight.EVIDENCE]
    for count in range(len(evidence) - 1, 1, -1):  # its first line only says where it is
        left_out = set(evidence[count:])
        shorter = _tidied([line for place, line in enumerate(lines) if place not in left_out])
        if _height(shorter, width) <= rows:
            return shorter
    return None


def _height(lines: Sequence[OutputLine], width: int) -> int:
    return sum(max(1, -(-columns(str(line)) // width)) for line in lines)


def _tidied(lines: Sequence[OutputLine]) -> list[OutputLine]:
    """Return the lines without empty ones at the end or after another empty one."""
    kept: list[OutputLine] = []
    for line in lines:
        if str(line) or (kept and str(kept[-1])):
            kept.append(line)
    while kept and not str(kept[-1]):
        kept.pop()
    return kept
