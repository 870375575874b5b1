"""Which GPU of a node belongs to which rank, for pictures that show one by what is known of the other.

Processes take the GPUs of their node in the order of their ranks, unless a launcher is told otherwise. So this is only
assumed where the metrics have exactly one GPU for each rank of the node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kb.facts.evidence import Evidence
from kb.metrics.panel import Panel
from kb.report import GpuRef, Suspect


def with_gpus(suspects: Sequence[Suspect], panel: Panel, nodes: Mapping[str, Sequence[int]]) -> list[Suspect]:
    """Return the suspects, each rank with its GPU. Without it, all GPUs of a node would be drawn as the suspect's."""
    gpus = _gpus_of(panel)
    found = []
    for suspect in suspects:
        ranks = sorted(nodes.get(suspect.node or "", ()))
        own = ranks.index(suspect.rank) if suspect.rank in ranks else None
        known = own is None or suspect.gpu is not None or not _one_each(gpus, suspect.node, ranks)
        found.append(suspect if known else replace(suspect, gpu=GpuRef(index=own)))
    return found


def with_ranks(suspects: Sequence[Suspect], evidence: Evidence) -> list[Suspect]:
    """Return the suspects, each GPU with its rank. Without it, all ranks of a node would be drawn as the suspect's."""
    panels = [_gpus_of(panel) for panel in evidence.panels.values()]
    found = []
    for suspect in suspects:
        ranks = sorted(evidence.job.nodes.get(suspect.node or "", ()))
        index = suspect.gpu.index if suspect.gpu is not None and suspect.rank is None else None
        known = (
            index is not None and index < len(ranks) and any(_one_each(gpus, suspect.node, ranks) for gpus in panels)
        )
        found.append(replace(suspect, rank=ranks[index]) if known and index is not None else suspect)
    return found


def _gpus_of(panel: Panel) -> Mapping[str, set[str]]:
    gpus: dict[str, set[str]] = {}
    for row in panel.rows:
        if row.resource.node and row.resource.gpu is not None and row.resource.rank is None:
            gpus.setdefault(row.resource.node, set()).add(row.resource.gpu)
    return gpus


def _one_each(gpus: Mapping[str, set[str]], node: str | None, ranks: Sequence[int]) -> bool:
    return gpus.get(node or "") == {str(index) for index in range(len(ranks))}
