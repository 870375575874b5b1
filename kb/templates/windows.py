"""Counts of templates in windows of steps or of time, thinned so that they stay bounded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from heapq import nlargest

STEPS, SECONDS = 10, 60  # width of a window
LAST_WINDOWS = 64
COARSE_WINDOWS = 128
Counts = Mapping[str, int]  # by template id


@dataclass(frozen=True, slots=True)
class Windows:
    """Counts by template in windows of `width` steps or seconds; the key of a window is its number: step // width.

    `last`: the last windows, each by itself. `coarse`: all of them, `2 ** level` together, keyed by number >> level. `heads`: what came
    before the first known step (or time), by the offset at which that part of the stream starts.
    """

    width: int
    last: Mapping[int, Counts] = field(default_factory=dict)
    coarse: Mapping[int, Counts] = field(default_factory=dict)
    level: int = 0
    heads: Mapping[int, Counts] = field(default_factory=dict)

    @property
    def fine(self) -> bool:
        """Whether `coarse` has every window by itself."""
        return self.level == 0


def add_windows(left: Windows, right: Windows) -> Windows:
    """Return the sum of two sets of windows, at the coarser level of both."""
    level = max(left.level, right.level)
    return Windows(
        left.width,
        _summed(left.last, right.last),
        _summed(_coarser(left, level), _coarser(right, level)),
        level,
        _summed(left.heads, right.heads),
    )


def _coarser(windows: Windows, level: int) -> Mapping[int, Counts]:
    step = level - windows.level
    if not step:
        return windows.coarse
    coarse: dict[int, Counts] = {}
    for key, counts in windows.coarse.items():
        coarse[key >> step] = _sum(coarse.get(key >> step), counts)
    return coarse


def thinned(windows: Windows) -> Windows:
    """Return the windows, coarsened until they fit the bounds."""
    if len(windows.last) <= LAST_WINDOWS and len(windows.coarse) <= COARSE_WINDOWS:
        return windows
    level = windows.level
    while len({key >> (level - windows.level) for key in windows.coarse}) > COARSE_WINDOWS:
        level += 1
    last = {key: windows.last[key] for key in nlargest(LAST_WINDOWS, windows.last)}
    return replace(windows, last=last, coarse=_coarser(windows, level), level=level)


def _summed(left: Mapping[int, Counts], right: Mapping[int, Counts]) -> dict[int, Counts]:
    summed = dict(left)
    for key, counts in right.items():
        summed[key] = _sum(summed.get(key), counts)
    return summed


def _sum(left: Counts | None, right: Counts) -> Counts:
    if not left:
        return right
    summed = dict(left)
    for key, count in right.items():
        summed[key] = summed.get(key, 0) + count
    return summed


def recounted(windows: Windows, names: Mapping[str, str | None]) -> Windows:
    """Return the windows with templates under new ids; those whose new id is None are left out."""

    def recount(counts: Counts) -> Counts:
        found: dict[str, int] = {}
        for key, count in counts.items():
            name = names.get(key, key)
            if name is not None:
                found[name] = found.get(name, 0) + count
        return found

    return replace(
        windows,
        last={key: recount(counts) for key, counts in windows.last.items()},
        coarse={key: recount(counts) for key, counts in windows.coarse.items()},
        heads={key: recount(counts) for key, counts in windows.heads.items()},
    )
