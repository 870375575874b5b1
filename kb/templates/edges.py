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


class Edges(Generic[_Line]):
    """Follows the blocks of a part in order; `read` reads a line of a block. At most `firsts` and `lasts` lines are kept."""

    __slots__ = ("_late", "_read", "first", "firsts", "last", "lasts")

    def __init__(self, read: Callable[[LineBlock, int], _Line], firsts: int, lasts: int) -> None:
        self._read, self.firsts, self.lasts = read, firsts, lasts
        self.first: list[_Line] = []
        self.last: list[_Line] = []
        self._late: tuple[LineBlock, list[int]] | None = None  # after `last`

    def take(self, block: LineBlock, indexes: NDArray[np.int64]) -> None:
        """Add a block in which the lines have these indexes, in order."""
        room = self.firsts - len(self.first)  # blocks come in order: what is full stays
        if room > 0:
            self.first += [self._read(block, index) for index in indexes[:room].tolist()]
        late: list[int] = indexes[-self.lasts :].tolist()
        if len(late) < self.lasts:
            self.settle()
        self._late = (block, late)

    def settle(self, before: LineBlock | None = None) -> None:
        """Read the last lines, unless they are of the block `before`, after which more may come."""
        if self._late is None or self._late[0] is before:
            return
        block, indexes = self._late
        self.last = [*self.last, *(self._read(block, index) for index in indexes)][-self.lasts :]
        self._late = None

    def merge(self, other: Edges[_Line]) -> None:
        """Add what another one saw of the same part. Both are settled."""
        self.first = sorted((*self.first, *other.first), key=_OFFSET)[: self.firsts]
        self.last = sorted((*self.last, *other.last), key=_OFFSET)[-self.lasts :]
