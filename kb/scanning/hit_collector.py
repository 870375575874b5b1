"""The hits of line patterns in one stream, bounded."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from dataclasses import field, replace
from functools import lru_cache

from kb.model import StreamRef
from kb.parsers.logs.prefixes import peel
from kb.parsers.logs.speakers import writer
from kb.regex.backtracking import STEPS, Budget, BudgetSpent
from kb.regex.pattern import Found, SafePattern, compiled
from kb.scanning.learned_ranks import rank_by
from kb.scanning.line_access import decode, filled_resource, line_at, rank_of_line, time_at_or_before
from kb.scanning.plan import LinePattern, ScanPlan
from kb.scanning.summary import (
    FIRST_PLACES,
    LAST_PLACES,
    PLACES_A_RANK,
    PatternHits,
    Place,
    RankTally,
    first_places,
    last_places,
)
from kb.values import dataclass

SHOWN = 512
_LONGEST = 200  # characters of a captured word
RANKS_TOLD = 64  # once this many lines of a pattern in a block agree with the log's rank, the rest are not checked
NEAR = 4096  # bytes of a line around a match that `confirm` and `not_line` see
LINES_OF_STEPS = 10  # searches of full length in one stream that look-around and back references may cost a pattern


@dataclass(slots=True)
class _KeptHits:
    """The hits of one line pattern during a scan: first places, hits kept per rank, tallies, last windows."""

    count: int = 0
    first: list[Place] = field(default_factory=list)
    taken: dict[int | None, int] = field(default_factory=dict)
    ranks: dict[int | None, list[int]] = field(default_factory=dict)
    last: deque[tuple[int, bytes, int]] = field(default_factory=lambda: deque(maxlen=LAST_PLACES))
    budget: Budget = field(default_factory=lambda: Budget(LINES_OF_STEPS * STEPS))


class HitCollector:
    """Keeps the hits of line patterns in one stream: bounded places, counts and ranks."""

    def __init__(self, plan: ScanPlan, ref: StreamRef, speaker: re.Pattern[bytes] | None = None) -> None:
        self._plan, self._ref, self._speaker = plan, ref, speaker
        self._hits: dict[int, _KeptHits] = {}

    def add(self, index: int, data: bytes, starts: list[int], base: int, year: int | None) -> None:
        """Process the lines of a block that a pattern hit; `base` is the block's offset in the stream."""
        line = self._plan.lines[index]
        if line.sources and self._ref.kind not in line.sources:
            return
        kept = self._hits.get(index)
        if kept is None:
            kept = self._hits[index] = _KeptHits()
        if not line.certain:
            means = _decider(line)
            starts = [start for start in starts if means(line_at(data, start), kept.budget)]
        kept.count += len(starts)
        fixed = self._ref.resource.rank
        told, rest = self._asked(data, starts)
        for start in told:
            rank = rank_of_line(data, start)
            if rank is None and self._speaker is not None:
                rank = rank_by(self._speaker, line_at(data, start))
            if rank is None:
                rank = fixed
            _add_to_tally(kept.ranks, rank, base + start)
            if len(kept.first) < FIRST_PLACES and kept.taken.get(rank, 0) < PLACES_A_RANK:
                kept.taken[rank] = kept.taken.get(rank, 0) + 1
                kept.first.append(self._place(line, base + start, data, start, year))
        if rest:
            _add_to_tally(kept.ranks, fixed, base + rest[0], len(rest))
        for start in starts[-LAST_PLACES:]:
            kept.last.append((base + start, data[max(0, start - 1024) : start + 8192], min(start, 1024)))

    def _asked(self, data: bytes, starts: list[int]) -> tuple[list[int], list[int]]:
        """Return the lines whose rank must be checked: in a rank's own log only a few, unless one belongs to another rank."""
        fixed = self._ref.resource.rank
        if fixed is None or len(starts) <= RANKS_TOLD:
            return starts, []
        told = starts[:RANKS_TOLD]
        if any(rank_of_line(data, start) not in (None, fixed) for start in told):
            return starts, []
        return told, starts[RANKS_TOLD:]

    def _place(self, line: LinePattern, offset: int, data: bytes, start: int, year: int | None) -> Place:
        text = line_at(data, start)
        prefix = peel(text[:1024])
        match = _finder(line)(text)
        at = match.start() if match else 0
        captures = (
            tuple((name, _cut(decode(value))) for name, value in match.groupdict().items() if value) if match else ()
        )
        time, own = (prefix.time, True) if prefix.time is not None else time_at_or_before(data, start, year)
        who = writer(text[:1024], prefix)
        if who.rank is None and self._speaker is not None:
            who = replace(who, rank=rank_by(self._speaker, text))
        who = filled_resource(self._ref.resource, who)
        return Place(offset, _shown_part(text, at), who, time, captures, own)

    def collected(self, year: int | None) -> dict[str, PatternHits]:
        """Return the hits by the pattern's key."""
        found = {}
        for index, kept in self._hits.items():
            if not kept.count:
                continue
            line = self._plan.lines[index]
            last = [self._place(line, offset, data, at, year) for offset, data, at in kept.last]
            ranks = sorted(kept.ranks.items(), key=lambda item: (item[1][1], -1 if item[0] is None else item[0]))
            found[line.key] = PatternHits(
                kept.count,
                first_places(kept.first),
                last_places(last),
                tuple(RankTally(rank, count, first) for rank, (count, first) in ranks),
            )
        return dict(sorted(found.items()))


def _add_to_tally(ranks: dict[int | None, list[int]], rank: int | None, offset: int, more: int = 1) -> None:
    tally = ranks.get(rank)
    if tally is None:
        ranks[rank] = [more, offset]
    else:
        tally[0] += more


def _shown_part(text: bytes, at: int) -> str:
    start = 0 if len(text) <= SHOWN or at < SHOWN // 2 else at - SHOWN // 4
    return decode(text[start : start + SHOWN])


@lru_cache(maxsize=4096)
def _finder(line: LinePattern) -> Callable[[bytes], Found | None]:
    """Search a line for the pattern, after the stripped prefix if the regex has `^`."""
    regex = compiled(line.regex.encode(), line.ignore_case)

    def find(text: bytes) -> Found | None:
        try:
            return regex.search(text[peel(text[:1024]).end :] if line.anchored else text)
        except BudgetSpent:
            return None

    return find if line.anchored or regex.engine == "steps" else regex.search


@lru_cache(maxsize=4096)
def _decider(line: LinePattern) -> Callable[[bytes, Budget], bool]:
    """Whether the rule accepts a line that the engine hit. False if checking costs too much."""
    find = _finder(line)
    confirm: SafePattern | None = compiled(line.confirm.encode()) if line.confirm else None
    deny: SafePattern | None = compiled(line.not_line.encode()) if line.not_line else None

    def decide(text: bytes, budget: Budget) -> bool:
        match = find(text)
        if match is None:
            return False
        if confirm is None and deny is None:
            return True
        near = text if len(text) <= NEAR else text[max(0, match.start() - NEAR // 2) : match.end() + NEAR // 2]
        return (confirm is None or confirm.finds(near, unknown=False, budget=budget)) and (
            deny is None or not deny.finds(near, unknown=True, budget=budget)
        )

    return decide


def _cut(word: str) -> str:
    """Return what a pattern captured; of a long message, its first words."""
    return word if len(word) <= _LONGEST else f"{word[:_LONGEST].rpartition(' ')[0] or word[:_LONGEST]} ..."
