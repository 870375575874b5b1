"""What the metrics of a slow rank's GPU say beside those of the other GPUs: its clock, temperature and power."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median

from kb.facts.evidence import Evidence
from kb.facts.gpu_ranks import with_gpus
from kb.metrics.panel import Panel
from kb.report import Suspect

MOST = 3  # suspects whose GPUs are looked at
LEAST = 3  # values, and other GPUs
LATE = 0.25  # share of the time that counts where it is unknown when the rank became slow
_METRICS = {"sm_clock": "SM clock", "gpu_temp": "temperature", "gpu_power": "power"}


def with_gpu_states(suspects: Sequence[Suspect], evidence: Evidence, since: float | None) -> tuple[Suspect, ...]:
    """Return the suspects; of ranks whose GPU is known and measured, its figures since then are among the reasons."""
    return tuple(_with_state(item, evidence, since) if at < MOST else item for at, item in enumerate(suspects))


def _with_state(suspect: Suspect, evidence: Evidence, since: float | None) -> Suspect:
    told = list(_figures(suspect, evidence, since)) if suspect.rank is not None else []
    if not told:
        return suspect
    return replace(suspect, why=f"{suspect.why}; its GPU: {', '.join(told)}".removeprefix("; "))


def _figures(suspect: Suspect, evidence: Evidence, since: float | None) -> Iterator[str]:
    for metric, name in _METRICS.items():
        panel = evidence.panels.get(metric)
        if panel is None:
            continue
        [known] = with_gpus([suspect], panel, evidence.job.nodes)
        index = known.gpu.index if known.gpu is not None else None
        own, others = _levels(panel, suspect.node, None if index is None else str(index), since)
        if own is not None and len(others) >= LEAST:
            yield f"{name} {own:,.0f} {panel.unit}".rstrip() + f" (others {median(others):,.0f})"


def _levels(
    panel: Panel, node: str | None, gpu: str | None, since: float | None
) -> tuple[float | None, Sequence[float]]:
    """Return the usual value of one GPU since then, and those of all others."""
    columns = panel.values.shape[1]
    first = round(columns * (1 - LATE)) if since is None else int((since - panel.start) / panel.step) + 1
    first = min(max(0, first), max(0, columns - LEAST))
    own, others = None, []
    for row, values, mask in zip(panel.rows, panel.values, panel.mask, strict=True):
        known = values[first:][mask[first:]].tolist()
        if len(known) < LEAST or row.resource.gpu is None:
            continue
        if gpu is not None and (row.resource.node, row.resource.gpu) == (node, gpu):
            own = median(known)
        else:
            others.append(median(known))
    return own, others
