"""Codes for close-outs and feedback: stored values, their words, and their limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

Verdict = Literal["right", "right_not_first", "wrong", "abstained_rightly", "not_looked_at"]
Cause = Literal["shown", "fault", "no_rule", "no_failure", "unknown"]

VERDICTS: Mapping[Verdict, str] = {
    "right": "right",
    "right_not_first": "right, but not first",
    "wrong": "wrong",
    "abstained_rightly": "correctly gave no cause",
    "not_looked_at": "not reviewed",
}
JUDGED: tuple[Verdict, ...] = ("right", "right_not_first", "wrong")  # verdicts on answers that named a fault
NAMELESS: Mapping[Cause, str] = {
    "no_rule": "no rule fits",
    "no_failure": "nothing failed",
    "unknown": "unknown cause",
}  # causes without a fault

LONGEST = {"fault": 128, "rule": 128, "action": 500, "note": 3000, "who": 128, "node": 253}
MOST_NODES = 200


def implied(cause: Cause | None, fault: str | None, found: Sequence[str]) -> Verdict:
    """Derive whether the answer was right from the cause that a person names. `found`: the reported faults, the top one first."""
    if cause in ("shown", "fault"):
        if fault not in found:
            return "wrong"
        return "right" if found[0] == fault else "right_not_first"
    if cause in ("no_rule", "no_failure"):
        return "wrong" if found else "abstained_rightly"
    return "not_looked_at"


def nameless(cause: Cause | None) -> str | None:
    """Return the words for a cause without a fault; None for other causes or none."""
    return None if cause is None else NAMELESS.get(cause)
