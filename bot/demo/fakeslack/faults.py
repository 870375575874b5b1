"""Injected faults: the next calls of a method fail like a network or server does, before or after they take effect."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

KINDS = ("500", "503", "timeout", "reset", "ratelimited", "error")


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        kind: "500", "503", "timeout" (no response for `seconds`), "reset" (the connection ends without a response), "ratelimited"
            (429 with Retry-After `seconds`), "error" (the Slack error `error`).
        times: How many calls it affects.
        after: Whether the call takes effect first, and only its response is lost.
    """

    kind: str
    times: int = 1
    after: bool = False
    seconds: float = 30.0
    error: str = "fatal_error"


class Faults:
    """Pending faults by method; "response_url" and "upload" count as methods."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, list[Fault]] = {}

    def order(self, method: str, trouble: Fault) -> None:
        """Queue a fault for the next calls of this method.

        Raises:
            ValueError: Its kind is none of KINDS.
        """
        if trouble.kind not in KINDS:
            raise ValueError(f"unknown fault kind: {trouble.kind}; known kinds: {', '.join(KINDS)}")
        with self._lock:
            self._waiting.setdefault(method, []).append(trouble)

    def next(self, method: str) -> Fault | None:
        """Take the fault of this call."""
        with self._lock:
            waiting = self._waiting.get(method)
            if not waiting:
                return None
            first = waiting[0]
            if first.times > 1:
                waiting[0] = replace(first, times=first.times - 1)
            else:
                waiting.pop(0)
            return first
