"""Statistics that carry their number of cases and are left out if there are too few."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean, median

LEAST = 5  # minimum number of cases for a share, mean or median
_Z = 1.959963984540054  # of the normal distribution, two-sided 95 %


@dataclass(frozen=True, slots=True)
class Share:
    """`hits` of `n`; `value`, `low` and `high` (Wilson, 95 %) are None if n is below five."""

    hits: int
    n: int
    value: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, 90th percentile and mean of `n` values; None if n is below five."""

    n: int
    median: float | None = None
    p90: float | None = None
    mean: float | None = None


@dataclass(frozen=True, slots=True)
class Sum:
    """A sum over the `n` of `of` cases whose value is known: a lower bound if n is less."""

    value: float
    n: int
    of: int


@dataclass(frozen=True, slots=True)
class Rate:
    """`total` (hours) per case of `n`; None if n is below five."""

    total: float
    n: int
    value: float | None = None


def share(hits: int, n: int) -> Share:
    """A share with its interval."""
    return Share(hits, n, hits / n, *wilson(hits, n)) if n >= LEAST else Share(hits, n)


def spread(values: Iterable[float]) -> Spread:
    """The 90th percentile is the smallest value that nine tenths of all do not exceed."""
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
    """Hours per case of `n`; unknown with fewer than LEAST cases."""
    return Rate(hours, n, hours / n if n >= LEAST else None)


def wilson(hits: int, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval for a share (E. B. Wilson 1927); 0 to 1 if there are no cases."""
    if n <= 0:
        return 0.0, 1.0
    found, z = hits / n, _Z
    middle = found + z * z / (2 * n)
    half = z * math.sqrt(found * (1 - found) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)
