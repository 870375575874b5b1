"""Separates events from the lines of a block that mean nothing on their own, such as the frames of a traceback."""

from __future__ import annotations

from kb.anomalies.core.run import RunEvent
from kb.anomalies.core.severity_words import is_body


def is_part(event: RunEvent) -> bool:
    """Whether its lines, or their template without indentation, are part of another line's block."""
    first = next((spot.text for seen in event.nodes.values() for spot in seen.spots[:1]), "")
    return is_body(event.text) or (bool(first) and is_body(first))
