"""The first and the last few lines of something in a part of a stream; the last ones are read only once nothing of it follows."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from kb.templates.line_blocks import LineBlock

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class _Seen(Protocol):
    @property
    def offset(self) -> int: ...


_Line = TypeVar("_Line", bound=_Seen)
_OFFSET = attrgetter("offset")
Read = Callable[[LineBlock, "NDArray[np.int64]"], list[_Line]]  # the lines of a block at some indexes, in order


class Edges(Generic[_Line]):
    """Follows the blocks of a part in order. At most `firsts` and `lasts` lines are kept. `read` reads lines of a block.

    `read` is passed with each call: an object that kept a method of its owner would be in a reference cycle with it.
    """

    __slots__ = ("_late", "first", "firsts", "last", "lasts")

    def __init__(self, firsts: int, lasts: int) -> None:
        self.firsts, self.lasts = firsts, lasts
        self.first: list[_Line] = []
        self.last: list[_Line] = []
        self._late: tuple[LineBlock, NDArray[np.int64]] | None = None  # after `last`

    def take(self, block: LineBlock, indexes: NDArray[np.int64], read: Read[_Line]) -> None:
        """Add a block in which the lines have these indexes, in order."""
        room = self.firsts - len(self.first)  # blocks come in order: what is full stays
        if room > 0:
            self.first += read(block, indexes[:room])
        late = indexes[-self.lasts :]
        if len(late) < self.lasts:
            self.settle(read)
        self._late = (block, late)

    def settle(self, read: Read[_Line], before: LineBlock | None = None) -> None:
        """Read the last lines, unless they are of the block `before`, after which more may come."""
        if self._late is None or self._late[0] is before:
            return
        block, indexes = self._late
        self.last = [*self.last, *read(block, indexes)][-self.lasts :]
        self._late = None

    def merge(self, other: Edges[_Line]) -> None:
        """Add what another one saw of the same part. Both are settled."""
        self.first = sorted((*self.first, *other.first), key=_OFFSET)[: self.firsts]
        self.last = sorted((*self.last, *other.last), key=_OFFSET)[-self.lasts :]
