"""Compares the learning rate planned by a job's command line with the actual one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from kb.model import ProgressPoint

_WARM_UP = re.compile(
    r"(?<![\w-])-{0,2}(?:lr[-_.])?(?:num[-_])?warm[-_]?up(?:[-_](?:num[-_])?(?:steps|iters|iterations|updates))?[ =]{1,3}(\d{1,9})(?![\d.])"
)
LEAST_STEPS = 30
LEAST_POINTS = 5
LONGEST = 65_536


@dataclass(frozen=True, slots=True)
class StuckWarmup:
    """A warm-up that stops rising long before its planned end: the point from which on the rate stays, the rate, the planned steps."""

    point: ProgressPoint
    rate: float
    planned: int

    @property
    def text(self) -> str:
        """Describe it in one sentence."""
        step = self.point.step
        return (
            f"the learning rate stays at {self.rate:.4g} from step {step} on, during a warm-up of {self.planned} steps"
        )


def warm_up_of(args: str | None) -> int | None:
    """Return the warm-up steps on a command line; None if they are missing or contradictory."""
    found = {int(item) for item in _WARM_UP.findall((args or "")[:LONGEST])}
    return found.pop() if len(found) == 1 else None


def stuck_warm_up(points: Sequence[ProgressPoint], planned: int | None) -> StuckWarmup | None:
    """Return the point at which a steadily rising rate stops rising long before the end of the warm-up."""
    rated = [
        (p, p.step, p.learning_rate)
        for p in points
        if p.learning_rate is not None and p.step is not None and not p.validation
    ]
    steps = [step for _, step, _ in rated]
    if (
        not planned
        or len(rated) < 2 * LEAST_POINTS
        or any(b <= a for a, b in pairwise(steps))
        or steps[0] > planned / 4
    ):
        return None  # the run may count its warm-up from the step at which it resumed
    rates = [rate for _, _, rate in rated]
    begin = next(at for at in range(len(rates)) if rates[at] == rates[-1] and set(rates[at:]) == {rates[-1]})
    within = [at for at in range(begin, len(rates)) if steps[at] <= planned]
    rose = begin >= LEAST_POINTS and all(b > a for a, b in pairwise(rates[: begin + 1]))
    long = len(within) >= LEAST_POINTS and steps[within[-1]] - steps[begin] >= min(LEAST_STEPS, 0.3 * planned)
    if not rose or not long or steps[begin] > 0.8 * planned or not rates[-1] > 0:
        return None
    return StuckWarmup(rated[begin][0], rates[-1], planned)
