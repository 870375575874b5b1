"""Counts for part of a stream, collected block by block as arrays and summed when the part is closed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kb.templates.windows import COARSE_WINDOWS, LAST_WINDOWS, Windows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

NONE = -(2**62)  # the window of a line before any is known
_RANKS = 10**9  # more digits than a rank has


class OriginCounts:
    """Counts by template and speaker while a part is read."""

    def __init__(self) -> None:
        self._parts: list[tuple[Ints, Ints, Ints]] = []
        self.size = 0

    def count(self, templates: Ints, voices: Ints, counts: Ints) -> None:
        """Add the templates' numbers, the speakers, and counts."""
        if len(templates):
            self._parts.append((templates, voices, counts))
            self.size += len(templates)

    def counts(self) -> Iterator[tuple[int, int, int]]:
        """Each template and speaker with the sum of its counts."""
        if not self._parts:
            return
        templates, voices, counts = (np.concatenate(column) for column in zip(*self._parts, strict=True))
        pairs, which = np.unique(templates * _RANKS + voices, return_inverse=True)
        sums = np.bincount(which, counts).astype(np.int64)
        yield from zip((pairs // _RANKS).tolist(), (pairs % _RANKS).tolist(), sums.tolist(), strict=True)


class WindowCounts:
    """Counts by window while a part is read."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._parts: list[tuple[Ints, Ints, Ints]] = []
        self.size = 0

    def count(self, part: tuple[Ints, Ints, Ints], numbers: Ints) -> None:
        """Add windows, templates as positions in `numbers`, which has their numbers, and counts."""
        windows, places, counts = part
        self._parts.append((windows, numbers[places], counts))
        self.size += len(windows)

    def windows_from(self, start: int, names: Sequence[str]) -> Windows:
        """The windows of the part that starts there; `names` are the templates' ids by number."""
        if not self.size:
            return Windows(self._width)
        windows, templates, counts = (np.concatenate(column) for column in zip(*self._parts, strict=True))
        head = windows == NONE
        found = _counted(windows[head] * 0, templates[head], counts[head], names)
        windows, templates, counts = windows[~head], templates[~head], counts[~head]
        distinct = np.unique(windows)
        level = 0
        while len(np.unique(distinct >> level)) > COARSE_WINDOWS:
            level += 1
        late = windows >= distinct[-LAST_WINDOWS:][0] if len(distinct) else head[:0]
        return Windows(
            self._width,
            _counted(windows[late], templates[late], counts[late], names),
            _counted(windows >> level, templates, counts, names),
            level,
            {start: found[0]} if found else {},
        )


def _counted(windows: Ints, templates: Ints, counts: Ints, names: Sequence[str]) -> dict[int, dict[str, int]]:
    """Counts by window, of which there are few, and template."""
    distinct, place = np.unique(windows, return_inverse=True)
    sums = np.bincount(place * len(names) + templates, counts).astype(np.int64)
    pairs = np.flatnonzero(sums)
    found: dict[int, dict[str, int]] = {}
    for pair, count in zip(pairs.tolist(), sums[pairs].tolist(), strict=True):
        window, template = divmod(pair, len(names))
        found.setdefault(int(distinct[window]), {})[names[template]] = count
    return found
