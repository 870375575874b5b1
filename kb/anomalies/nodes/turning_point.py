"""When a run turned; the evidence against its nodes is judged relative to it."""

from __future__ import annotations

import math
from dataclasses import dataclass

JUST_BEFORE = 3.0  # seconds before the last step in which the cause of the end may be printed
SOON = 90.0


@dataclass(frozen=True, slots=True)
class TurningPoint:
    """When a run turned: `at`, its last step or where it changed; `interval` seconds between step lines; `crashed`: no step came after.

    `wave`: when the first consequence came.
    """

    at: float | None
    interval: float
    crashed: bool
    wave: float | None = None

    @property
    def since(self) -> float:
        """The time from which on a line may belong to the turn."""
        return math.inf if self.at is None else self.at - JUST_BEFORE

    def near(self, time: float | None) -> float:
        """0 to 1: how near to the turn a line is."""
        if time is None or self.at is None:
            return 0.6
        before = self.at - time
        if before > max(JUST_BEFORE, 1.2 * self.interval):
            return 0.1 + 0.4 * math.exp(-before / max(240.0, 10 * self.interval))
        soon = max(SOON, 3 * self.interval)
        late = -before - soon
        near = 1.0 if late <= 0 else 0.1 + 0.9 * math.exp(-late / max(300.0, 10 * self.interval))
        if self.wave is not None and self.crashed and self.wave - soon <= time <= self.wave + JUST_BEFORE:
            return max(near, 0.8)
        return near
