"""What a job's evidence holds besides its logs, as the hang probes take it."""

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

MOST_RANKS = 200_000  # a job that tells of more is not believed


@dataclass(frozen=True, slots=True)
class NonLogEvidence:
    """What a bundle holds besides logs. `dumped`: when the recorders were dumped, where that is known.

    `late`: seconds by which the job's lines come late, where somebody watched them come (`kb.hangs.pace.Lateness`).
    """

    stacks: tuple[StackSample, ...] = ()
    rings: tuple[Ring, ...] = ()
    ras: tuple[RasReport, ...] = ()
    panels: Mapping[str, Panel] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    gaps: tuple[Gap, ...] = ()
    dumped: float | None = None
    late: float = 0.0

    def __bool__(self) -> bool:
        """Whether there is anything at all."""
        return bool(self.stacks or self.rings or self.ras or self.panels or self.events)


def expected_ranks(facts: Facts) -> range:
    """The ranks that there should be; none where the job does not tell, or tells nonsense."""
    count = facts.evidence.job.world_size or 0
    return range(count) if 0 < count <= MOST_RANKS else range(0)
