"""Compares the numbers in the lines of an event on some nodes with those of the others."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence

from kb.anomalies.core.run import NodeEvent, RunEvent

MOST_SLOTS = 8
_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.]*\d)")


def value_beyond(event: RunEvent, where: Mapping[str, NodeEvent]) -> float:
    """How far the largest number in its lines there exceeds those of the other nodes, as a power of two."""
    others = [spot.text for node, seen in event.nodes.items() if node not in where for spot in seen.spots]
    if not others:
        return 0.0
    mine = _extremes([spot.text for seen in where.values() for spot in seen.spots], max)
    theirs = _extremes(others, max)
    ratios = [math.log2((a + 1) / (b + 1)) for a, b in zip(mine, theirs, strict=False)]
    return min(6.0, max(0.0, max(ratios, default=0.0)))


def is_higher(event: RunEvent, where: Mapping[str, NodeEvent]) -> bool:
    """Whether a number there exceeds the other nodes' highest by more than their highest exceeds their lowest."""
    others = [spot.text for node, seen in event.nodes.items() if node not in where for spot in seen.spots]
    mine = _extremes([spot.text for seen in where.values() for spot in seen.spots], max)
    columns = zip(mine, _extremes(others, max), _extremes(others, min), strict=False)
    return any(math.log2((a + 1) / (b + 1)) > math.log2((b + 1) / (c + 1)) for a, b, c in columns)


def _extremes(texts: Sequence[str], best: Callable[[float, float], float]) -> list[float]:
    """The highest, or lowest, number at each place of lines."""
    columns: list[float] = []
    for text in texts:
        for i, value in enumerate(_NUMBER.findall(text)[:MOST_SLOTS]):
            number = float(value)
            if i == len(columns):
                columns.append(number)
            columns[i] = best(columns[i], number)
    return columns
