"""The step at which a run failed: what is told of it where the logs show how far the run came."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kb.report import Indicator, Progress

ESTIMATED = "estimate by the steps that were read; the failure may be later"
TURNED = "the step from which on it changed"
LAST_LOGGED = "last logged step; the failure is at it or later"


def as_logged(steps: Iterable[Indicator], progress: Progress) -> tuple[Indicator, ...]:
    """Return the last logged step in place of an estimated one: which step was under way behind it, no line says."""
    last = progress.last_iteration
    if last is None:
        return tuple(steps)
    return tuple(replace(item, what=str(last), why=LAST_LOGGED) if item.why == ESTIMATED else item for item in steps)
