"""How advice worked out: how many retries after a fault got past the point at which the previous attempt failed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kb.report import Advice, Outcomes

ADVICE: tuple[Advice, ...] = ("requeue", "requeue_without", "restart_in_place", "resubmit")


@dataclass(frozen=True, slots=True)
class AdviceStep:
    """A failure and what came next. `ran_on`, `reached`, `fault`: of the failure; those with `next_`: of the next try.

    `over`: the next try ended well. `tried`: there was a next try, or the job ended well.
    """

    fault: str
    advice: str
    reached: int | None = None
    ran_on: str = ""
    tried: bool = False
    over: bool = False
    next_fault: str | None = None
    next_reached: int | None = None
    next_ran_on: str = ""

    @property
    def done(self) -> str:
        """The action taken, inferred from both attempts' nodes if known, otherwise the advice given."""
        if self.ran_on and self.next_ran_on:
            if self.ran_on == self.next_ran_on:
                return "restart_in_place"
            return self.advice if self.advice in ("requeue_without", "resubmit") else "resubmit"
        return self.advice

    @property
    def helped(self) -> bool | None:
        """Whether the next try got past the point of failure; None if unknown."""
        if self.over:
            return True
        if self.reached is not None and self.next_reached is not None:
            return self.next_reached > self.reached
        if self.reached is None and self.next_reached is not None:
            return True  # it had failed before its first step
        return False if self.next_fault == self.fault else None


def outcomes(steps: Iterable[AdviceStep], fault: str) -> tuple[Outcomes, ...]:
    """How each advice worked out for a fault, the most frequently tried first; advice that was never tried is left out."""
    found: dict[Advice, list[bool | None]] = {}
    for step in steps:
        if step.fault == fault and step.tried:
            for advice in ADVICE:
                if step.done == advice:
                    found.setdefault(advice, []).append(step.helped)
    told = [_counted(advice, fault, marks) for advice, marks in found.items()]
    return tuple(sorted((item for item in told if item.tried), key=lambda item: (-item.tried, item.advice)))


def _counted(advice: Advice, fault: str, marks: list[bool | None]) -> Outcomes:
    known = [mark for mark in marks if mark is not None]
    return Outcomes(advice, fault, sum(known), len(known), len(marks) - len(known))
