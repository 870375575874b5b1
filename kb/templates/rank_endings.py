"""The last line of each rank of a part of a stream, read only once nothing of the rank follows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import nsmallest
from typing import Generic, TypeVar

from kb.templates.line_blocks import LineBlock
from kb.templates.template import MOST_VOICES

_Seen = TypeVar("_Seen")
_Read = Callable[[LineBlock, int], _Seen]


class RankEndings(Generic[_Seen]):
    """Follows the blocks of a part. `read` reads a line of a block; see `Edges` on why it is passed."""

    def __init__(self) -> None:
        self._known: dict[int, _Seen] = {}
        self._late: dict[int, tuple[LineBlock, int]] = {}  # after `_known`

    def take(self, block: LineBlock, last: Mapping[int, int], read: _Read[_Seen]) -> None:
        """Add a block: by rank the index of its last line there."""
        for rank in self._late.keys() - last.keys():
            self._known[rank] = read(*self._late[rank])
        self._late = {rank: (block, index) for rank, index in last.items()}
        if len(self._known) > 2 * MOST_VOICES:
            self._known = {rank: self._known[rank] for rank in nsmallest(MOST_VOICES, self._known)}

    def lines(self, read: _Read[_Seen]) -> dict[int, _Seen]:
        """Return the last line of each rank, of the smallest `MOST_VOICES` ranks."""
        late = {rank: read(*self._late[rank]) for rank in nsmallest(MOST_VOICES, self._late)}
        return self._known | late
