"""What the metrics say of the GPU of a slow rank, beside the others."""

from __future__ import annotations

import numpy as np

from kb.diagnosis.suspects.gpu_state import with_gpu_states
from kb.facts.evidence import Evidence
from kb.metrics.panel import Row, make_panel
from kb.model import Job, Resource
from kb.report import Suspect

NODES = {"node-0": (0, 1), "node-1": (2, 3)}
SLOW = Suspect("rank", "node-1", 3, why="differs from all other ranks")


def evidence(slow: int = 3, begin: int = 30, gpus: int = 2) -> Evidence:
    """Two nodes of GPUs over 40 minutes; the clock of one falls, and it becomes hotter."""
    rows = tuple(Row(Resource(node=f"node-{node}", gpu=str(gpu))) for node in range(2) for gpu in range(gpus))
    clock, heat = np.full((len(rows), 40), 1980.0), np.full((len(rows), 40), 58.0)
    clock[slow, begin:], heat[slow, begin:] = 1155.0, 88.0
    panels = {
        "sm_clock": make_panel("sm_clock", rows, 0.0, 60.0, clock, "MHz"),
        "gpu_temp": make_panel("gpu_temp", rows, 0.0, 60.0, heat, "C"),
    }
    return Evidence(Job(nodes=NODES), panels=panels)


def test_the_clock_and_the_heat_of_its_gpu_are_told() -> None:
    """Since it became slow, or of the last part where that is unknown; beside the median of all others."""
    told = "differs from all other ranks; its GPU: SM clock 1,155 MHz (others 1,980), temperature 88 C (others 58)"
    for since in (30 * 60.0, None):
        [found] = with_gpu_states([SLOW], evidence(), since)
        assert told == found.why
    [usual] = with_gpu_states([SLOW], evidence(slow=0), None)
    assert usual.why.endswith("SM clock 1,980 MHz (others 1,980), temperature 58 C (others 58)")


def test_nothing_is_told_where_its_gpu_is_not_known() -> None:
    """A node with more GPUs than ranks, a suspect without a rank, or no metrics."""
    assert with_gpu_states([SLOW], evidence(gpus=4), None) == (SLOW,)
    node = Suspect("node", "node-1")
    assert with_gpu_states([node], evidence(), None) == (node,)
    assert with_gpu_states([SLOW], Evidence(), None) == (SLOW,)
