"""The step at which a run failed: how far an estimate can be true, by what the logs show of its progress."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kb.report import Indicator, Progress

ESTIMATED = "estimated step of the failure"
TURNED = "the step from which on it changed"
LAST_LOGGED = "last logged step; the failure is at it or later"
BETWEEN_STEPS = frozenset({"evaluating", "saving"})  # stages that follow a step


def bounded(steps: Iterable[Indicator], progress: Progress, stage: str | None) -> tuple[Indicator, ...]:
    """Return estimated steps, none beyond the planned number, nor beyond the last logged one in a `stage` between steps."""
    return tuple(_bounded(item, progress, stage) if item.why == ESTIMATED else item for item in steps)


def _bounded(item: Indicator, progress: Progress, stage: str | None) -> Indicator:
    last, total = progress.last_iteration, progress.total_iterations
    if last is None or int(item.what) < last:
        return item
    step = last if stage in BETWEEN_STEPS else int(item.what)
    if total is not None and last <= total:
        step = min(step, total)
    return replace(item, what=str(step), why=LAST_LOGGED if step == last else ESTIMATED)
