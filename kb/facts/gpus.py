"""The number of GPUs of a job. Ranks count as GPUs only if something shows that the job runs on GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from kb.facts.job_facts import Facts
from kb.regex.lazy import lazy_compile
from kb.scanning.summary import tail_lines

_DEVICE_KINDS = ("nccl_init", "xid", "sxid")  # structures that only a job on GPUs has
_DEVICE_METRICS = frozenset({"gpu_util", "gpu_power", "gpu_temp", "gpu_memory"})
_WITH_MESSAGES = ("exception", "watchdog", "nccl_warn", "native_crash", "error_line")
# what only a process that uses a GPU prints; a CPU run may name CUDA, or say that there is none
_ON_GPU = lazy_compile(
    r"\bNCCL (?:INFO|WARN|version)\b|ProcessGroupNCCL|\bWorkNCCL\(|\b(?:cuda|hip):\d|\b(?:CUDA|HIP) (?:error:|out of memory)"
    r"|[Gg][Pp][Uu] available: True \((?:cuda|mps)\), used: True"
)


def gpu_count(facts: Facts) -> int | None:
    """Return the number of GPUs, from the job's description, or its ranks if it runs on GPUs; None if unknown."""
    job = facts.evidence.job
    if job.gpus:
        return job.gpus
    ranks = rank_count(facts)
    return ranks if ranks and _uses_gpus(facts) else None


def rank_count(facts: Facts) -> int | None:
    """Return the number of ranks that the job's description states; None if it states none."""
    job = facts.evidence.job
    return job.world_size or sum(len(ranks) for ranks in job.nodes.values()) or None


def _uses_gpus(facts: Facts) -> bool:
    if _DEVICE_METRICS & facts.evidence.panels.keys() or any(facts.structures(kind) for kind in _DEVICE_KINDS):
        return True
    return any(_ON_GPU.search(text) for text in _texts(facts))


def _texts(facts: Facts) -> Iterator[str]:
    """Yield the lines kept of the job's logs: their beginnings, structures and ends."""
    for kind in _WITH_MESSAGES:
        yield from (structure.line for _, structure in facts.structures(kind))
    for stream in facts.of_kind("job"):
        yield stream.summary.head
        yield from (line for _, line in tail_lines(stream.summary))
