"""The result of a detector."""

from __future__ import annotations

from kb.model import ProgressPoint
from kb.values import dataclass


@dataclass(frozen=True, slots=True)
class SeriesFinding:
    """A point at which a series goes wrong, in words, the numbers for a rule's texts, and further points worth showing."""

    point: ProgressPoint
    text: str
    captures: tuple[tuple[str, str], ...] = ()
    more: tuple[ProgressPoint, ...] = ()


def step_label(point: ProgressPoint) -> str:
    """Return the step of a point for a sentence, or `?` if it is unknown."""
    return "?" if point.step is None else str(point.step)
