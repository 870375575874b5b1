"""How much is kept of each stream, so that the summaries of a run fit into memory however many ranks it has."""

from __future__ import annotations

from kb.scanning.summary import LAST_POINTS, POINTS, TEXT
from kb.values import dataclass

ALL_POINTS = 256 * 1024  # iteration lines of all streams together; up to 256 streams, each keeps as many as it may
ALL_TEXT = 64 * 1024 * 1024  # bytes at either end of all streams
FEWEST_POINTS = 32
LEAST_TEXT = 6 * 1024


@dataclass(frozen=True, slots=True)
class SummaryLimits:
    """What a summary keeps at most of a stream of one rank: a sample of so many iteration lines, the last ones, bytes of text at either end."""

    points: int = POINTS
    last_points: int = LAST_POINTS
    text: int = TEXT


WHOLE = SummaryLimits()  # of one stream by itself


def limits_for(streams: int) -> SummaryLimits:
    """Return the limits for each of so many streams: the shares of what all may keep, but no less than what a diagnosis needs."""
    points = min(POINTS, max(FEWEST_POINTS, ALL_POINTS // max(1, streams)))
    return SummaryLimits(points, min(LAST_POINTS, points), min(TEXT, max(LEAST_TEXT, ALL_TEXT // max(1, streams))))
