"""Group commit: writes that threads request at the same time share one transaction, so they wait for one lock and one disk sync."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sqlmodel import Session

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class GroupedWrite:
    """A write that a thread waits for. `turn`: set once the write is done, or once its thread has to commit the next group."""

    do: Callable[[Session], Any]
    result: Any = None
    error: BaseException | None = None
    done: bool = False
    turn: threading.Event = field(default_factory=threading.Event)


class GroupCommit:
    """Collects writes while a group is being committed. The first thread that waits commits the next group for all of them."""

    def __init__(self, commit: Callable[[Sequence[GroupedWrite]], None]) -> None:
        """`commit`: commits the writes of a group and sets the result or the error of each; if it raises, all of them fail."""
        self._commit = commit
        self._guard = threading.Lock()
        self._waiting: list[GroupedWrite] = []
        self._busy = False

    @property
    def waiting(self) -> int:
        """The number of writes in the next group."""
        return len(self._waiting)

    def write(self, do: Callable[[Session], T]) -> T:
        """Run `do` in a transaction, possibly on another thread and together with other writes. Return its result.

        Raises:
            Exception: whatever `do` or the commit raises; then nothing of `do` is written.
        """
        own = GroupedWrite(do)
        with self._guard:
            self._waiting.append(own)
            first, self._busy = not self._busy, True
        try:
            if not first:
                own.turn.wait()
        except BaseException:  # interrupted: another thread must not wait for this one
            self._leave(own)
            raise
        if not own.done:
            self._commit_next()
        if own.error is not None:
            raise own.error
        result: T = own.result
        return result

    def _commit_next(self) -> None:
        with self._guard:
            group, self._waiting = self._waiting, []
        try:
            self._commit(group)
        except BaseException as error:
            for write in group:
                write.error = write.error or error
            if not isinstance(error, Exception):
                raise
        finally:
            for write in group:
                write.done = True
                write.turn.set()
            with self._guard:
                self._hand_on()

    def _hand_on(self) -> None:
        self._busy = bool(self._waiting)
        if self._busy:
            self._waiting[0].turn.set()

    def _leave(self, own: GroupedWrite) -> None:
        with self._guard:
            if own in self._waiting:
                chosen = own.turn.is_set()
                self._waiting.remove(own)
                if chosen:
                    self._hand_on()
