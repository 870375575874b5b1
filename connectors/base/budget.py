"""How much load a source may get from us: requests a minute, calls at once, bytes a minute. Shared by all collections."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from connectors.base.contract import Deadline, SourceFailed


@dataclass(frozen=True, slots=True)
class Load:
    """The most that a source gets: requests a minute, bytes a minute that are read from it, calls at once."""

    requests: int = 240
    """The most requests a minute."""
    bytes: int = 1 << 30
    """The most bytes a minute that are read."""
    calls: int = 8
    """The most requests at a time."""


class Budget:
    """Counts what one source was asked in this process, and makes callers wait where it would be too much.

    A bucket that refills evenly: a minute's worth at once is allowed, more is spread out.
    """

    def __init__(self, load: Load | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.load = load or Load()
        self._clock = clock
        self._lock = threading.Lock()
        self._slots = threading.Semaphore(self.load.calls)
        self._requests = float(self.load.requests)
        self._bytes = float(self.load.bytes)
        self._at = clock()

    @contextmanager
    def call(self, deadline: Deadline, asked: str = "") -> Iterator[None]:
        """Room for one request; waits for it.

        Raises:
            SourceFailed: there is none before the deadline.
        """
        if not self._slots.acquire(timeout=deadline.left()):
            raise SourceFailed(
                "over_budget", f"all {self.load.calls} concurrent calls to it stayed in use", asked=asked
            )
        try:
            self._wait(deadline, asked)
            yield
        finally:
            self._slots.release()

    def read(self, size: int) -> None:
        """Bytes that have been read: the next calls wait for them."""
        with self._lock:
            self._refill()
            self._bytes -= size

    def _wait(self, deadline: Deadline, asked: str) -> None:
        while True:
            with self._lock:
                self._refill()
                if self._requests >= 1 and self._bytes > 0:
                    self._requests -= 1
                    return
                pause = max(
                    (1 - self._requests) * 60 / self.load.requests, (1 - self._bytes) * 60 / self.load.bytes, 0.01
                )
            if pause >= deadline.left():
                raise SourceFailed(
                    "over_budget",
                    f"Signalbox's own limit of {self.load.requests} requests and {self.load.bytes:,} bytes a minute is used up",
                    asked=asked,
                    hint="try again later, or raise `load` of this connector",
                )
            time.sleep(pause)

    def _refill(self) -> None:
        now = self._clock()
        share = (now - self._at) / 60
        self._at = now
        self._requests = min(float(self.load.requests), self._requests + share * self.load.requests)
        self._bytes = min(float(self.load.bytes), self._bytes + share * self.load.bytes)
