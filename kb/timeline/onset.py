"""Where one line of a chart leaves the median of all, for a mark at the step at which a rank became slow."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

LATE = 0.2  # share of the values that are the last part
LEAST_LATE = 3  # values
LEAST_APART = 0.15  # share of the median by which the last part must differ


def shares(values: Sequence[float | None], middle: Sequence[float | None]) -> list[tuple[int, float]]:
    """Return (column, difference as a share of the median) for the columns in which both are known."""
    return [
        (column, value / usual - 1.0)
        for column, (value, usual) in enumerate(zip(values, middle, strict=False))
        if value is not None and usual
    ]


def late_level(apart: Sequence[tuple[int, float]]) -> float:
    """Return the usual share of the last part; 0.0 if nothing is known."""
    late = [share for _, share in apart[-max(LEAST_LATE, round(LATE * len(apart))) :]]
    return median(late) if late else 0.0


def first_apart(apart: Sequence[tuple[int, float]]) -> int | None:
    """Return the column from which all values are at least half as far apart as the last part.

    None if the last part hardly differs, or if it was so from the first value on.
    """
    level = late_level(apart)
    if abs(level) < LEAST_APART:
        return None
    calm = [at for at, (_, share) in enumerate(apart) if share / level < 0.5]
    return apart[calm[-1] + 1][0] if calm and calm[-1] + 1 < len(apart) else None


def first_step_apart(apart: Sequence[tuple[int, float]], level: float, start: float, width: float) -> int | None:
    """Return the first step, of two columns from `start` on, from which all in them are at least half as far apart as `level`.

    None if the last of them is not.
    """
    found = None
    for step, share in reversed([item for item in apart if start <= item[0] < start + 2 * width]):
        if share / level < 0.5:
            break
        found = step
    return found
