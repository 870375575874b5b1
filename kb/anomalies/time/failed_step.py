"""The step at which a run failed, as reported if the logs show how far the run came."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kb.report import Indicator, Progress

ESTIMATED = "estimate by the steps that were read; the failure may be later"
TURNED = "the step from which on it changed"
LAST_LOGGED = "last logged step; the failure is at it or later"


def as_logged(steps: Iterable[Indicator], progress: Progress) -> tuple[Indicator, ...]:
    """Return the last logged step instead of an estimated one, because no line says which step was in progress after it."""
    last = progress.last_iteration
    if last is None:
        return tuple(steps)
    return tuple(replace(item, what=str(last), why=LAST_LOGGED) if item.why == ESTIMATED else item for item in steps)
