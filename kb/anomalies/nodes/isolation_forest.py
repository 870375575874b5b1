"""An isolation forest (Liu, Ting, Zhou: Isolation Forest, 2008): how few random cuts separate a row from the others.

Small and seeded: the same rows give the same scores. L4 uses one over the counts of events by node.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

TREES = 100
SAMPLE = 256
_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Isolation:
    """Return the score of each row, from 0 to 1, higher for odd rows, and the columns that separate it, the most telling first."""

    scores: tuple[float, ...]
    columns: tuple[tuple[int, ...], ...]


class _Random:
    """A small random number generator (splitmix64), because the packages under kb use no source of randomness."""

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def below(self, limit: int) -> int:
        return self._next() % limit

    def part(self) -> float:
        return self._next() / (_MASK + 1)

    def _next(self) -> int:
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        value = self._state
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
        return value ^ (value >> 31)


def isolate(rows: Sequence[Sequence[float]], *, seed: int = 7, trees: int = TREES) -> Isolation:
    """Score rows of equal length from 0 to 1, higher the sooner a row is isolated; with fewer than three rows all score 0."""
    if len(rows) < 3 or not rows[0]:
        return Isolation((0.0,) * len(rows), ((),) * len(rows))
    chance = _Random(seed)
    size = min(SAMPLE, len(rows))
    depth = math.ceil(math.log2(size))
    varying = [c for c in range(len(rows[0])) if len({row[c] for row in rows}) > 1]
    if not varying:
        return Isolation((0.0,) * len(rows), ((),) * len(rows))
    paths = [0.0] * len(rows)
    used: list[Counter[int]] = [Counter() for _ in rows]
    tree = _Tree(rows, varying, depth, chance, paths, used)
    for _ in range(trees):
        tree.grow(_draw(len(rows), size, chance), list(range(len(rows))), 0)
    usual = _average(size)
    scores = tuple(2.0 ** (-path / trees / usual) for path in paths)
    return Isolation(
        scores, tuple(tuple(c for c, _ in sorted(counter.items(), key=lambda x: (-x[1], x[0]))) for counter in used)
    )


def _draw(count: int, size: int, chance: _Random) -> list[int]:
    order = list(range(count))
    for i in range(size):
        j = i + chance.below(count - i)
        order[i], order[j] = order[j], order[i]
    return order[:size]


@dataclass(frozen=True, slots=True)
class _Tree:
    """One tree at a time, grown on a sample while all rows pass through it at once."""

    rows: Sequence[Sequence[float]]
    varying: list[int]
    depth: int
    chance: _Random
    paths: list[float]
    used: list[Counter[int]]

    def grow(self, sample: list[int], down: list[int], level: int) -> None:
        cut = self._cut(sample) if level < self.depth and len(sample) > 1 else None
        if cut is None:
            for i in down:
                self.paths[i] += level + _average(len(sample))
            return
        column, value = cut
        left = [i for i in down if self.rows[i][column] <= value]
        right = [i for i in down if self.rows[i][column] > value]
        smaller = left if len(left) < len(right) else right
        for i in smaller:
            self.used[i][column] += len(down) - len(smaller)
        for side in (left, right):
            if side:
                inside = set(side)
                self.grow([i for i in sample if i in inside], side, level + 1)

    def _cut(self, sample: list[int]) -> tuple[int, float] | None:
        for _ in range(8):
            column = self.varying[self.chance.below(len(self.varying))]
            values = [self.rows[i][column] for i in sample]
            low, high = min(values), max(values)
            if high > low:
                return column, low + (high - low) * self.chance.part()
        return None


def _average(size: int) -> float:
    """The mean depth of an unsuccessful search in a tree of that many rows."""
    if size <= 1:
        return 0.0
    if size == 2:
        return 1.0
    return 2.0 * (math.log(size - 1) + 0.5772156649) - 2.0 * (size - 1) / size
