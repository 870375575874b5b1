"""Judges whether the numbers at one place of a stream's lines are the ranks that wrote the lines.

Ranks take all values from 0 up, jump back and forth from line to line, and are before the same kinds of lines for each value. A step,
a clock or a counter does not.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

FEWEST_RANKS = 3
COVERED = (
    0.6  # share of the lines without a known form that have this one; launchers and their reports add lines without it
)
SEVERAL = 5  # the highest rank from which on one of them may be missing
PRESENT = 0.9  # share of the numbers from 0 to the highest that occur
BACK = 0.25  # share of the changes from line to line that go down
BACK_IN_TURN = 0.1  # likewise, where ranks speak in turn, as in logs that were sorted by whole seconds
KINDS = 3  # of lines that several ranks print
KINDS_IN_TURN = 6

LETTERS = re.compile(rb"[A-Za-z]{2,}")


@dataclass(slots=True)
class PlaceNumbers:
    """The numbers at one place of the prefix, by line the first of them, and what follows them."""

    lines: dict[int, int] = field(default_factory=dict)
    values: list[int] = field(default_factory=list)
    kinds: dict[bytes, set[int]] = field(default_factory=lambda: defaultdict(set))
    beside: dict[int, Counter[bytes]] = field(default_factory=lambda: defaultdict(Counter))  # the words before each
    within: dict[tuple[int, bytes], Counter[bytes]] = field(default_factory=lambda: defaultdict(Counter))  # by kind

    def add(self, line: int, value: int, behind: bytes, words: bytes | None = None) -> None:
        """Add the number of a line, by the words that say what kind of line it is. `words`: those before it."""
        kind = b" ".join(LETTERS.findall(behind)[:6])
        self.lines.setdefault(line, value)
        self.values.append(value)
        self.kinds[kind].add(value)
        if words is not None:
            self.beside[value][words] += 1
            self.within[value, kind][words] += 1

    @property
    def is_steady(self) -> bool:
        """Whether nearly always the same words stand before a number."""
        return all(max(words.values()) >= PRESENT * words.total() for words in self.beside.values())

    @property
    def is_global(self) -> bool:
        """Whether no two nodes seem to count from 0 each: the words before a number are its own, or go with the kind of line.

        A logger and a level go with the kind of line; a node does not.
        """
        if self.is_steady:
            return True
        by_kind: dict[bytes, Counter[bytes]] = defaultdict(Counter)
        for (_, kind), words in self.within.items():
            by_kind[kind] += words
        return _go_with(self.within.values(), len(self.values)) or _go_with(by_kind.values(), len(self.values))


def _go_with(found: Iterable[Counter[bytes]], lines: int) -> bool:
    """Whether the words are the same each time that they come again, and enough of them do."""
    again = [words for words in found if words.total() > 1]
    total = sum(words.total() for words in again)
    return total >= PRESENT / 2 * lines and sum(max(words.values()) for words in again) >= PRESENT * total


def is_rank(numbers: PlaceNumbers, lines: int, covered: float = COVERED) -> bool:
    """Whether numbers at one place of the lines behave as ranks do."""
    count = Counter(numbers.values)
    highest = max(count)
    enough = min(PRESENT * (highest + 1), highest if highest >= SEVERAL else math.inf)  # one may never have started
    if len(count) < max(FEWEST_RANKS, enough) or median(count.values()) < 2:
        return False
    if len(numbers.lines) < covered * lines:
        return False
    changes = [after - before for before, after in pairwise(numbers.values) if after != before]
    back = sum(change < 0 for change in changes)
    shared = sum(len(ranks) >= FEWEST_RANKS for ranks in numbers.kinds.values())
    if not (back >= BACK * len(changes) and shared >= KINDS):
        often = sum(len(ranks) >= max(FEWEST_RANKS, len(count) / 2) for ranks in numbers.kinds.values())
        if back < BACK_IN_TURN * len(changes) or often < KINDS_IN_TURN:
            return False
    return numbers.is_global


def agrees(numbers: PlaceNumbers, named: Sequence[int | None]) -> bool:
    """Whether the numbers are the ranks of the lines that name theirs in a known form, too: tracebacks do where nothing else does."""
    both = [value == rank for line, value in numbers.lines.items() if (rank := named[line]) is not None]
    return sum(both) >= PRESENT * len(both)
