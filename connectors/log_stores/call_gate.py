"""A gate for the concurrent calls to one log store, narrowed when the store is busy."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from connectors.base.contract import Deadline, SourceFailed


class CallGate:
    """Lets a limited number of callers through at a time, fewer each time the store refuses a call because it is busy. Thread-safe."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._inside = 0
        self._free = threading.Condition()

    def narrow(self) -> None:
        """Halve the number of callers from now on, to no less than one."""
        with self._free:
            self._most = max(1, self._most // 2)

    @contextmanager
    def passing(self, deadline: Deadline, asked: str) -> Iterator[None]:
        """Wait for a free slot.

        Raises:
            SourceFailed: There is no free slot before the deadline.
        """
        with self._free:
            if not self._free.wait_for(lambda: self._inside < self._most, timeout=deadline.left()):
                raise SourceFailed("timeout", "other queries to this server took all the time", asked=asked)
            self._inside += 1
        try:
            yield
        finally:
            with self._free:
                self._inside -= 1
                self._free.notify()
