"""Limits the load on a source: requests a minute, concurrent calls, bytes a minute. Shared by all collections."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from connectors.base.contract import Deadline, SourceFailed


@dataclass(frozen=True, slots=True)
class Load:
    """The maximum load on a source: requests a minute, bytes read a minute, concurrent calls."""

    requests: int = 240
    """Maximum requests a minute."""
    bytes: int = 1 << 30
    """Maximum bytes read a minute."""
    calls: int = 8
    """Maximum concurrent requests."""


class Budget:
    """Counts the requests to one source in this process, and makes callers wait when they exceed the limits.

    A token bucket that refills evenly: a minute's worth may be used at once, more is spread out.
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
        """Wait for capacity for one request.

        Raises:
            SourceFailed: There is none before the deadline.
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
        """Count bytes that were read; the next calls wait for them."""
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
