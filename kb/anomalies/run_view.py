"""A run prepared for the comparisons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kb.anomalies.core.run import RunProfile
from kb.anomalies.events.features import MeasuredEvent
from kb.anomalies.time.change_step import StepChange, StepCourse
from kb.anomalies.time.run_end import RunEnding

STALLED = "TIMEOUT"  # the state of a run that hangs
ENDED_ITSELF = frozenset({"FAILED", "NODE_FAIL", "OUT_OF_MEMORY"})


@dataclass(frozen=True, slots=True)
class RunView:
    """A run prepared for the comparisons: its clocks aligned, its steps, where it turned, its events measured."""

    run: RunProfile
    off: Mapping[str, float]
    course: StepCourse
    turned: tuple[StepChange, ...]
    ending: RunEnding
    measured: tuple[MeasuredEvent, ...]
    fresh: Mapping[str, float]
