"""Says when a process that polls the store should look again: soon after somebody wrote to it, and now and then for what only time brings.

SQLite counts the commits to a file, which costs some microseconds to read; a look at the tables costs a hundred times as much.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from bot.store.database import Database, StoreError

BUSY = 1.5  # seconds after a change in which each poll looks
ACTIVE = 12.0  # seconds after a change in which there is a look a second: longer than a silent worker's heartbeat is waited for
SOON = 1.0
LULL = 10.0  # seconds between looks where nothing changes: longer retries, leases of the dead
UNSEEN = 0.5  # the same where changes cannot be seen, on PostgreSQL
LONGEST = 30.0  # maximum seconds between polls while the store is unavailable
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class ChangeWatch:
    """One poller's view of a store. `now`: returns monotonic seconds. Only one thread may use it."""

    database: Database
    now: Callable[[], float] = time.monotonic
    _wrote: float = field(default=float("-inf"), init=False)
    _next: float = field(default=0.0, init=False)
    _version: int | None = field(default=None, init=False)
    _connection: sqlite3.Connection | None = field(default=None, init=False)

    def due(self) -> bool:
        """Whether to look now."""
        now = self.now()
        changed = self._changed()
        if changed:
            self._wrote = now
        quiet = now - self._wrote
        if quiet >= BUSY and now < self._next:
            return False
        self._next = now + (UNSEEN if changed is None else SOON if quiet < ACTIVE else LULL)
        return True

    def close(self) -> None:
        """Close its connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _changed(self) -> bool | None:
        """Whether another connection has written since the last call; None if that cannot be seen."""
        file = self.database.file
        if file is None:
            return None
        try:
            if self._connection is None:
                self._connection = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=0.0)
            version = int(self._connection.execute("PRAGMA data_version").fetchone()[0])
        except sqlite3.Error:
            with suppress(sqlite3.Error):
                self.close()
            return None
        before, self._version = self._version, version
        return version != before


def poll(database: Database, look: Callable[[], bool], stop: Callable[[], bool], *, idle: float, what: str) -> None:
    """Call `look` until stopped: at once while it returns True, else when the store may hold something new.

    `idle`: seconds between polls, doubled up to LONGEST while the store is unavailable. `what`: what is not done then, for the log.
    """
    pause, watch, busy = idle, ChangeWatch(database), False
    try:
        while not stop():
            try:
                busy, pause = (busy or watch.due()) and look(), idle
            except StoreError as error:
                _log.warning("cannot %s: %s", what, error)
                busy, pause = False, min(pause * 2, LONGEST)
            if not busy:
                time.sleep(pause)
    finally:
        watch.close()
