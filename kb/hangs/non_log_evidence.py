"""Prepares a job's evidence other than logs for the hang probes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kb.collectives.trace import Ring
from kb.facts.job_facts import Facts
from kb.model import Event, Gap, StackSample
from kb.parsers.nccl_ras.values import RasReport

if TYPE_CHECKING:
    from kb.metrics.panel import Panel

MOST_RANKS = 200_000  # a larger claimed job size is not believed


@dataclass(frozen=True, slots=True)
class NonLogEvidence:
    """The contents of a bundle other than logs. `dumped`: when the recorders were dumped, if known.

    `late`: seconds by which the job's lines arrive late, if a watcher measured it (`kb.hangs.pace.Lateness`). `alive`:
    whether a watcher sees the job's processes running, whatever their logs say about an earlier attempt.
    """

    stacks: tuple[StackSample, ...] = ()
    rings: tuple[Ring, ...] = ()
    ras: tuple[RasReport, ...] = ()
    panels: Mapping[str, Panel] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    gaps: tuple[Gap, ...] = ()
    dumped: float | None = None
    late: float = 0.0
    alive: bool = False

    def __bool__(self) -> bool:
        """Whether there is any such evidence."""
        return bool(self.stacks or self.rings or self.ras or self.panels or self.events)


def expected_ranks(facts: Facts) -> range:
    """Return the ranks that should exist; none if the job's size is unknown or implausible."""
    count = facts.evidence.job.world_size or 0
    return range(count) if 0 < count <= MOST_RANKS else range(0)
