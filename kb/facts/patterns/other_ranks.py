"""What the other ranks did when one raised an exception: the same, something else before or after it, or further steps."""

from __future__ import annotations

import math
from collections.abc import Mapping

from kb.facts.job_facts import CLOCK_SKEW, Facts
from kb.model import Structure
from kb.regex.lazy import lazy_compile

_VARIES = lazy_compile(r"\d+|0x[0-9a-f]+|'[^']{0,200}'|\"[^\"]{0,200}\"")  # within the same message on several ranks
_SAID = 80  # characters of a message that identify it
_SHARE_ALIKE = 0.9  # of the ranks; the logs of a few may be lost


class OtherRanks:
    """The exceptions and last steps of all ranks of a job, for questions about one of them."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._alike: dict[tuple[str, str], set[int]] = {}
        self._first: dict[int, float] = {}  # rank → time of its first exception
        self._raising: set[int] = set()
        self._untimed = False
        for _, item in facts.structures("exception"):
            rank = facts.placed(item.resource).rank
            if rank is None or item.fields.get("lived_with"):
                continue
            self._raising.add(rank)
            self._alike.setdefault(_identity(item), set()).add(rank)
            if item.time is None:
                self._untimed = True
            else:
                self._first[rank] = min(item.time, self._first.get(rank, math.inf))
        self._earliest = sorted(self._first.items(), key=lambda entry: entry[1])[:2]
        self._steps = _last_steps(facts)
        self._known = max(facts.ranks_known(), len(self._raising | self._steps.keys()))

    def around(self, item: Structure) -> str:
        """Return what the others did, one of kb.classifier.traits.RANKS; empty if the rank, the others or the order are unknown."""
        rank = self._facts.placed(item.resource).rank
        alike = self._alike.get(_identity(item), ())
        if rank is None or self._known <= 1 or rank not in alike:
            return ""
        if len(alike) > 1:
            return "alike" if len(alike) >= _SHARE_ALIKE * self._known else ""
        if len(self._raising) > 1:
            return self._order(rank, item.time)
        latest = max((time for other, time in self._steps.items() if other != rank), default=-math.inf)
        went_on = item.time is not None and item.timed and latest > item.time + CLOCK_SKEW
        return "on" if went_on else "alone"

    def _order(self, rank: int, time: float | None) -> str:
        """Return whether a rank failed before or after the others that failed with something else."""
        if time is None or self._untimed:
            return ""
        other = next((when for who, when in self._earliest if who != rank), math.inf)
        if abs(other - time) <= CLOCK_SKEW:
            return ""
        return "first" if time < other else "lost"


def _identity(item: Structure) -> tuple[str, str]:
    """Return what exceptions of the same fault on several ranks have in common: type, and what they say without values."""
    return str(item.fields.get("type") or ""), _VARIES.sub("", str(item.fields.get("message") or "")[:_SAID])


def _last_steps(facts: Facts) -> Mapping[int, float]:
    """Return the time of the last step of each rank that has a log of its own."""
    found: dict[int, float] = {}
    for stream in facts.streams:
        rank = stream.summary.ref.resource.rank
        if rank is not None:
            times = (point.time for point in stream.points if point.time is not None)
            found[rank] = max(found.get(rank, -math.inf), max(times, default=-math.inf))
    return found
