"""A cache of recently found workloads, so that the parts of one diagnosis read a job and its pods only once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from connectors.base.contract import OUT_OF_TIME, Deadline, SourceFailed
from connectors.kubernetes.jobs import FoundWorkload

LASTS = 5.0  # seconds
MOST = 8  # workloads
LARGEST = 2000  # pods of a workload that is kept

Key = tuple[str, str | None, str | None]  # name, namespace, kind


@dataclass(slots=True)
class _Entry:
    lock: threading.Lock = field(default_factory=threading.Lock)
    found: tuple[FoundWorkload, ...] = ()
    at: float = float("-inf")


class RecentWorkloads:
    """The workloads found in the last few seconds, by name, namespace and kind.

    Thread-safe: only one of several parallel calls for a job queries the server.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: dict[Key, _Entry] = {}

    def keep(self, key: Key, found: tuple[FoundWorkload, ...]) -> None:
        """Remember what was just found."""
        entry = self._entry(key)
        with entry.lock:
            self._set(entry, found)

    def get(
        self, key: Key, find: Callable[[], tuple[FoundWorkload, ...]], deadline: Deadline
    ) -> tuple[FoundWorkload, ...]:
        """Return what was found recently, or the result of `find`.

        Raises:
            SourceFailed: From `find`, or another call for this job was not done by the deadline.
        """
        entry = self._entry(key)
        if not entry.lock.acquire(timeout=deadline.left()):
            raise SourceFailed("timeout", OUT_OF_TIME, asked=key[0])
        try:
            if self._clock() - entry.at < LASTS:
                return entry.found
            found = find()
            self._set(entry, found)
            return found
        finally:
            entry.lock.release()

    def _set(self, entry: _Entry, found: tuple[FoundWorkload, ...]) -> None:
        if found and sum(len(item.pods) for item in found) <= LARGEST:
            entry.found, entry.at = found, self._clock()

    def _entry(self, key: Key) -> _Entry:
        with self._lock:
            entry = self._entries.pop(key, None) or _Entry()
            self._entries[key] = entry  # the most recently used one comes last
            while len(self._entries) > MOST:
                self._entries.pop(next(iter(self._entries)))
            return entry
