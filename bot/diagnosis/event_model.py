"""The fitted model of events, which ships with the product. Written by bench/l4_fit.py."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from kb.anomalies.events.model import EventModel, decoded

FILE = Path(__file__).with_name("event_weights.json")


@cache
def event_model() -> EventModel:
    """The model, read once."""
    return decoded(FILE.read_bytes())
