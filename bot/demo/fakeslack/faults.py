"""Trouble on order: the next calls of a method fail as a network or a server does, before or after it is done."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

KINDS = ("500", "503", "timeout", "reset", "ratelimited", "error")


@dataclass(frozen=True, slots=True)
class Fault:
    """One trouble.

    Attributes:
        kind: "500", "503", "timeout" (no answer for `seconds`), "reset" (the connection ends without an answer), "ratelimited"
            (429 with Retry-After `seconds`), "error" (Slack's own word `error`).
        times: How many calls it hits.
        after: Whether the call is done first, and only its answer lost.
    """

    kind: str
    times: int = 1
    after: bool = False
    seconds: float = 30.0
    error: str = "fatal_error"


class Faults:
    """The troubles that wait for their calls, by method; "response_url" and "upload" count as methods."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, list[Fault]] = {}

    def order(self, method: str, trouble: Fault) -> None:
        """Let the next calls of this method meet it, after those that wait already."""
        if trouble.kind not in KINDS:
            raise ValueError(f"unknown fault kind: {trouble.kind}; known kinds: {', '.join(KINDS)}")
        with self._lock:
            self._waiting.setdefault(method, []).append(trouble)

    def next(self, method: str) -> Fault | None:
        """The trouble of this call, counted as met."""
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
