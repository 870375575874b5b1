"""Takes a run's steps from lines that its ranks print occasionally and independently, such as heartbeats of alternating ranks.

No rank prints enough of them to count by itself. In the order of time, though, one number of theirs rises over all ranks together, as only
a count that they have in common does: their own numbers jump from rank to rank.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from kb.anomalies.core.run import RANK, LineRef, RunEvent, RunProfile, StepLine
from kb.anomalies.core.severity_words import is_body, is_consequence
from kb.anomalies.core.stamps import STAMPS

FEWEST_LINES = 8  # that are kept, of all ranks together
FEWEST_RANKS = 3
FEWEST_VALUES = 5
OFTEN = 0.3  # times as many lines as the event with the most has, at least
ROOM = 0.04  # share of the range by which a rank may be behind another; one step in any case
MOST_ODD = 8  # ranks that are tried as the one that began again
ALSO_LATER = 1.3  # lines of a rank, on average: of one, each has its own number
BACK = 0.12  # share of the changes of rank from line to line that go down
HIGHEST = 10_000_000  # greater numbers are times, sizes and identities
_COUNT = re.compile(r"(?<![\w.+-])(?:[A-Za-z]{1,6}_?)?(\d{1,7})(?![\w.]*\d)(?! ?(?:%|[kMGT]i?B\b|m?s\b|bytes\b))")
_TOTAL = re.compile(r" ?(?:/|of|out of) ?(\d+)\b")

_Number = tuple[int, int | None]  # with its total


@dataclass(frozen=True, slots=True)
class SharedCount:
    """The lines that count, in order. `total`: it has an end."""

    beats: tuple[StepLine, ...]
    total: bool

    @property
    def pace(self) -> float | None:
        """Seconds from one number to the next that is printed."""
        times = [beat.spot.time for beat in self.beats if beat.spot.time is not None]
        values = len({beat.step for beat in self.beats})
        return (max(times) - min(times)) / (values - 1) or None if times else None


def shared_count(run: RunProfile) -> SharedCount | None:
    """The count that most lines show, of one with an end if there is any; None if no line counts."""
    if len(run.ranks) < FEWEST_RANKS:
        return None
    found = [item for event in sorted(run.events.values(), key=lambda one: one.id) for item in _counts_of(event)]
    most = max((len(item.beats) for item in found), default=0)
    usual = [item for item in found if len(item.beats) >= OFTEN * most]
    usual = [item for item in usual if item.total] or usual
    return max(usual, key=lambda item: len(item.beats), default=None)


def _counts_of(event: RunEvent) -> list[SharedCount]:
    spots = [spot for node, seen in event.nodes.items() if node.startswith(RANK) for spot in seen.spots]
    if len(spots) < FEWEST_LINES or len(event.nodes) < 2 or is_body(event.text) or is_consequence(event.text):
        return []
    ordered = sorted(spots, key=lambda spot: (spot.time or 0.0, spot.source, spot.offset))
    if event.count < ALSO_LATER * len(event.nodes) or not _in_turn([spot.rank for spot in ordered]):
        return []
    rows = [_numbers(spot) for spot in ordered]
    width = min(map(len, rows))
    columns = [[row[place] for row in rows] for place in range(width)]
    return [found for column in columns if (found := _count(ordered, column)) is not None]


def _count(spots: Sequence[LineRef], column: Sequence[_Number]) -> SharedCount | None:
    """The count at one place of the lines, that of all ranks but one if the one began again."""
    if _rises([value for value, _ in column]):
        return _counted(spots, column)
    back = [
        spot.rank
        for spot, (before, _), (after, _) in zip(spots[1:], column, column[1:], strict=False)
        if after < before
    ]
    for rank in sorted({rank for rank in back if rank is not None})[:MOST_ODD]:
        rest = [place for place, spot in enumerate(spots) if spot.rank != rank]
        if len(rest) >= FEWEST_LINES and _rises([column[place][0] for place in rest]):
            return _counted([spots[place] for place in rest], [column[place] for place in rest])
    return None


def _counted(spots: Sequence[LineRef], column: Sequence[_Number]) -> SharedCount:
    totals = {total for _, total in column}
    (total,) = totals if len(totals) == 1 else (None,)
    beats = tuple(StepLine(spot, value) for spot, (value, _) in zip(spots, column, strict=True))
    return SharedCount(beats, total is not None and total >= beats[-1].step)


def _numbers(spot: LineRef) -> list[_Number]:
    """The whole numbers of a line in order, each with the total behind it."""
    text = STAMPS.sub(" ", spot.text)
    behind = ((int(match[1]), _TOTAL.match(text, match.end())) for match in _COUNT.finditer(text))
    return [(value, int(total[1]) if total else None) for value, total in behind]


def _in_turn(ranks: Sequence[int | None]) -> bool:
    """Whether the lines jump back and forth between ranks: a number that rises only with the rank is its own."""
    changes = [after - before for before, after in pairwise(rank or 0 for rank in ranks) if after != before]
    return sum(change < 0 for change in changes) >= BACK * len(changes) > 0


def _rises(values: Sequence[int]) -> bool:
    """Whether numbers rise over all ranks, but for those of a rank that is a little behind."""
    low, high = min(values), max(values)
    room = max(1.0, ROOM * (high - low))
    if high >= HIGHEST or len(set(values)) < FEWEST_VALUES or values[-1] - values[0] < (high - low) * (1 - 2 * ROOM):
        return False
    reached = values[0]
    for value in values:
        if value < reached - room:
            return False
        reached = max(reached, value)
    return True
