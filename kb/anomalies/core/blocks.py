"""Tells the lines of a block that say nothing by themselves, as the frames of a traceback, from events."""

from __future__ import annotations

from kb.anomalies.core.run import RunEvent
from kb.anomalies.core.severity_words import is_body


def is_part(event: RunEvent) -> bool:
    """Whether its lines, or their template, which lacks their indentation, are a part of another line's block."""
    first = next((spot.text for seen in event.nodes.values() for spot in seen.spots[:1]), "")
    return is_body(event.text) or (bool(first) and is_body(first))
