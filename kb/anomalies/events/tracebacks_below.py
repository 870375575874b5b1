"""Finds the lines that a traceback directly below them explains: exceptions that have it in their message, and lines that introduce it.

Libraries report so what another process, or a worker of a data loader, raised; the other exception says what happened. Python's own
chains are not meant: there each exception is printed by itself, and each may be the one that tells. What a rank logs directly above its
own traceback, and what a launcher does, introduces it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence

from kb.anomalies.core.run import LineRef, RunEvent, RunProfile
from kb.anomalies.core.severity_words import is_consequence, is_mild, is_raised

FEW = 1  # speakers that may report in words of their own, above what they lost
BELOW = 40  # bytes of prefixes between a line and the head of the traceback below it
LONGEST = 20_000  # bytes of a traceback
GRAVE = frozenset({"error", "critical", "fatal"})
_HEAD = re.compile(r"Traceback \(most recent call last\)")
_OF_ANOTHER = re.compile(
    r"\w+ Traceback \(most recent call last\)|Traceback \(most recent call last\): *\(\S"
)  # more than Python's own
_Speaker = tuple[str, int | None]  # source and rank


class TracebacksBelow:
    """The tracebacks of one run, by what is directly above them."""

    def __init__(self, run: RunProfile) -> None:
        self._raised: dict[_Speaker, list[tuple[int, bool]]] = defaultdict(list)  # with whether it is a consequence
        self._heads: dict[_Speaker, list[tuple[int, bool]]] = defaultdict(list)  # with whether it is another's
        self._handled: dict[str, list[tuple[int, bool]]] = defaultdict(
            list
        )  # by source, the ends of lines that report a way out
        for event in run.events.values():
            if event.level not in GRAVE and is_mild(event.text) and not is_raised(event.text):
                for spot in (spot for seen in event.nodes.values() for spot in seen.spots):
                    self._handled[spot.source].append((_end(spot), False))
            raised, follows = is_raised(event.text), is_consequence(event.text)
            for seen in event.nodes.values():
                for spot in seen.spots:
                    if raised:
                        self._raised[spot.source, spot.rank].append((spot.offset, follows))
                    elif _HEAD.search(spot.text):
                        another = _OF_ANOTHER.search(spot.text) is not None
                        self._heads[spot.source, spot.rank].append((spot.offset, another))
        for several in (*self._raised.values(), *self._heads.values(), *self._handled.values()):
            several.sort()

    def explain(self, event: RunEvent, spots: Sequence[LineRef], went_on: Callable[[LineRef], bool]) -> bool:
        """Whether the exception of a traceback below explains an event, each time it came.

        A warning above the exception that ended its rank tells something of its own. `went_on`: whether the writer of a line continued.
        """
        if not self._heads:
            return False
        raised, follows = is_raised(event.text), is_consequence(event.text)
        grave = event.level is None or event.level in GRAVE
        return all(
            self._explains(spot, raised=raised, follows=follows) and (grave or raised or follows or went_on(spot))
            for spot in spots
        )

    def introduces_loss(self, event: RunEvent, spots: Sequence[LineRef]) -> bool:
        """Whether several ranks print an event at the level of an error, each directly above its own traceback about a lost peer."""
        several = len({(spot.source, spot.rank) for spot in spots}) > FEW and event.level in GRAVE
        return several and not is_raised(event.text) and all(self._is_above_loss(spot) for spot in spots)

    def _is_above_loss(self, spot: LineRef) -> bool:
        inner = self._below(spot)
        return inner is not None and inner[1]

    def is_handled(self, spot: LineRef) -> bool:
        """Whether the traceback of an exception stands directly below a line that tells a way out, below the level of an error."""
        heads = self._heads.get((spot.source, spot.rank), ())
        at = bisect_right(heads, (spot.offset, True)) - 1
        if at < 0 or spot.offset > heads[at][0] + LONGEST:
            return False
        above = self._handled.get(spot.source, ())
        last = bisect_right(above, (heads[at][0], True)) - 1
        return last >= 0 and heads[at][0] <= above[last][0] + BELOW

    def tells_way_out(self, spot: LineRef) -> bool:
        """Whether a line tells a way out of what the traceback directly below it reports."""
        end = _end(spot)
        heads = (_next(places, spot.offset) for (source, _), places in self._heads.items() if source == spot.source)
        below = any(head is not None and head[0] <= end + BELOW for head in heads)
        return below and (end, False) in self._handled.get(spot.source, ())

    def _explains(self, spot: LineRef, *, raised: bool, follows: bool) -> bool:
        inner = self._below(spot)
        if inner is None:
            return False
        if raised:
            head = _next(self._heads.get((spot.source, spot.rank), ()), spot.offset)
            return head is not None and head[1]
        return follows or (spot.rank is not None and not inner[1])

    def _below(self, spot: LineRef) -> tuple[int, bool] | None:
        """The exception of the traceback that begins directly below a line."""
        who = spot.source, spot.rank
        head, inner = _next(self._heads.get(who, ()), spot.offset), _next(self._raised.get(who, ()), spot.offset)
        if head is None or inner is None or head[0] > _end(spot) + BELOW or not head[0] < inner[0] < head[0] + LONGEST:
            return None
        return inner


def _end(spot: LineRef) -> int:
    return spot.offset + len(spot.text.encode("utf-8", "replace"))


def _next(places: Sequence[tuple[int, bool]], offset: int) -> tuple[int, bool] | None:
    at = bisect_right(places, (offset, True))
    return places[at] if at < len(places) else None
