"""How much of a window one query covers: what the server allows, and as much as it searches in a few seconds."""

from __future__ import annotations

import threading

from connectors.base.contract import Deadline, SourceFailed
from connectors.log_stores.loki_limits import LokiLimits

NS = 1_000_000_000
PART_SECONDS = 5.0  # a part of a search by words is to take so long
FIRST_PART = 32 << 20  # bytes of the first part of a search by words


class SearchPace:
    """How fast the server searches lines by words, learned from the parts it has answered. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rate: float | None = None  # nanoseconds of the window that are searched in a second
        self._first: int | None = None

    def expect(self, size: float, span: int) -> None:
        """Record how many bytes a window of `span` nanoseconds holds, which determines the length of the first part."""
        self._first = max(NS, int(span * FIRST_PART / size)) if size > FIRST_PART else None

    def learn(self, span: int, seconds: float) -> None:
        """Note how many seconds a part of `span` nanoseconds took."""
        rate = span / max(seconds, 0.01)
        with self._lock:
            self._rate = rate if self._rate is None else (self._rate + rate) / 2

    def slower(self) -> None:
        """Note that a part took too long."""
        with self._lock:
            self._rate = None if self._rate is None else self._rate / 2

    def seconds(self, span: int) -> float | None:
        """Return how long this part of the window would take; None if nothing is known."""
        return None if self._rate is None else span / self._rate

    def span(self, seconds: float) -> int | None:
        """Return the part of the window that can be searched in this time; None if there is no limit."""
        return self._first if self._rate is None else max(1, int(self._rate * seconds))


class WindowPart:
    """How much of its window one query of a series covers. `spare`: seconds that a search by words leaves of the deadline."""

    def __init__(self, limits: LokiLimits, pace: SearchPace | None, deadline: Deadline, spare: float = 0.0) -> None:
        self._limits = limits
        self._pace = pace
        self._deadline = deadline
        self._spare = spare
        self._most: int | None = None
        self._began, self._backward = 0.0, False

    def of(self, low: int, high: int, *, backward: bool) -> tuple[int, int]:
        """Return the part to query next, from the end or the start of what is left; all times in nanoseconds since the epoch.

        Raises:
            SourceFailed: It would not finish before the deadline.
        """
        spans = [high - low]
        spans += [span for span in (self._most, self._limits.length) if span is not None]
        if self._pace is not None:
            left = max(0.0, self._deadline.left() - self._spare)
            goal = min(PART_SECONDS, 0.4 * (self._limits.seconds or 1e9))
            if (paced := self._pace.span(min(goal, left / 2))) is not None:
                spans.append(paced)
            expected = self._pace.seconds(min(spans))
            if left < 0.2 or (expected is not None and expected > left):
                raise SourceFailed("timeout", f"the rest of the search would take longer than the {left:.0f} s left")
        span = max(1, min(spans))
        self._began, self._backward = self._deadline.clock(), backward
        return (high - span, high) if backward else (low, low + span)

    def lessen(self, span: int) -> None:
        """Limit queries to this much from now on; the window is in nanoseconds."""
        self._most = span
        if self._pace is not None:
            self._pace.slower()

    def done(self, first: int, last: int, *, full: bool, reached: int | None) -> None:
        """Note that a part was answered. `full`: it ended at `reached`, where its page was full."""
        span = last - first
        if full and reached is not None:
            span = max(1, last - reached if self._backward else reached - first)
        if self._pace is not None and (not full or span > (last - first) // 4):
            self._pace.learn(span, self._deadline.clock() - self._began)
        if self._most is not None and not full:
            self._most *= 2
