"""Separates events from the lines of a block that mean nothing on their own, such as the frames of a traceback, and from bars before them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kb.anomalies.core.run import LineRef, RunEvent
from kb.anomalies.core.severity_words import is_body

_BAR = re.compile(r"(?:it/s|s/it)\b")


def is_part(event: RunEvent) -> bool:
    """Whether its lines, or their template without indentation, are part of another line's block."""
    first = next((spot.text for seen in event.nodes.values() for spot in seen.spots[:1]), "")
    return is_body(event.text) or (bool(first) and is_body(first))


def is_behind_bars(event: RunEvent, spots: Sequence[LineRef]) -> bool:
    """Whether its lines are what somebody printed behind a bar, on the same line: its words are not the bar's."""
    return _BAR.search(event.text) is None and all(_BAR.search(spot.text) for spot in spots)
