"""Fits an answer to the height of a terminal, so that its first line is still on the screen when the prompt returns."""

from __future__ import annotations

from collections.abc import Sequence

from bot.render.text_page import OutputLine


def fitted(lines: Sequence[OutputLine], rows: int | None) -> tuple[list[OutputLine], bool]:
    """Return the lines that fit into `rows` (None: all), the least needed dropped first, and whether any was dropped.

    If some were, a row is left for a note on it. Lines of weight 0 stay, even if they alone need more rows.
    """
    kept = list(lines)
    if rows is None or len(kept) <= rows:
        return kept, False
    for weight in sorted({line.weight for line in kept if line.weight}, reverse=True):
        kept = _tidied([line for line in kept if line.weight < weight])
        if len(kept) < rows:
            break
    return kept, True


def _tidied(lines: Sequence[OutputLine]) -> list[OutputLine]:
    """Return the lines without empty ones at the end or after another empty one."""
    kept: list[OutputLine] = []
    for line in lines:
        if str(line) or (kept and str(kept[-1])):
            kept.append(line)
    while kept and not str(kept[-1]):
        kept.pop()
    return kept
