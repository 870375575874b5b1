"""Numbers that say over how many cases they were taken, and are left out where these are too few."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean, median

LEAST = 5  # cases under which no share, mean or median is given
_Z = 1.959963984540054  # of the normal distribution, two-sided 95 %


@dataclass(frozen=True, slots=True)
class Share:
    """`hits` of `n`; `value`, `low` and `high` (Wilson, 95 %) are None where n is under five."""

    hits: int
    n: int
    value: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, nine-tenths mark and mean of `n` values; None where n is under five."""

    n: int
    median: float | None = None
    p90: float | None = None
    mean: float | None = None


@dataclass(frozen=True, slots=True)
class Sum:
    """A sum over the `n` of `of` cases whose value is known: a lower bound where n is less."""

    value: float
    n: int
    of: int


@dataclass(frozen=True, slots=True)
class Rate:
    """`total` (hours) per case of `n`; None where n is under five."""

    total: float
    n: int
    value: float | None = None


def share(hits: int, n: int) -> Share:
    """A share with its interval."""
    return Share(hits, n, hits / n, *wilson(hits, n)) if n >= LEAST else Share(hits, n)


def spread(values: Iterable[float]) -> Spread:
    """The nine-tenths mark is the least value that nine tenths of all do not exceed."""
    ordered = sorted(values)
    n = len(ordered)
    if n < LEAST:
        return Spread(n)
    return Spread(n, median(ordered), ordered[math.ceil(0.9 * n) - 1], fmean(ordered))


def total(values: Iterable[float | None]) -> Sum:
    """The sum of what is known."""
    every = list(values)
    known = [value for value in every if value is not None]
    return Sum(math.fsum(known), len(known), len(every))


def rate(hours: float, n: int) -> Rate:
    """Hours per case."""
    return Rate(hours, n, hours / n if n >= LEAST else None)


def wilson(hits: int, n: int) -> tuple[float, float]:
    """Wilson's interval of 95 % for a share (E. B. Wilson 1927); 0 to 1 where nothing is known."""
    if n <= 0:
        return 0.0, 1.0
    found, z = hits / n, _Z
    middle = found + z * z / (2 * n)
    half = z * math.sqrt(found * (1 - found) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)
