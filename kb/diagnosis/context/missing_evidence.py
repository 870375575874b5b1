"""Evidence that is missing and that could change the answer. What could not is not asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from kb.diagnosis.context.named_words import listed
from kb.facts.circumstances import RunCircumstances
from kb.facts.evidence import Evidence
from kb.facts.job_facts import Facts
from kb.model import Gap, Verdict
from kb.report import Diagnosis, spans

_DRIVER, _OOM, _LINK, _DISK, _HOST = "driver", "oom", "link", "disk", "host"
_GPU = frozenset(
    {
        "gpu_memory_ecc", "gpu_fell_off_bus", "gpu_firmware", "nvlink_fault", "gpu_fault", "gpu_peer_path",
        "gpu_thermal_power", "silent_corruption", "cuda_memory_access", "gpu_library",
    }
)  # fmt: skip
_SYMPTOMS = frozenset({"collective_timeout", "peer_failure", "killed", "unknown"})
# Classes that mix what a kernel can explain with what it cannot: the rules of the former.
_RULES: Mapping[str, frozenset[str]] = {
    "nccl_bootstrap": frozenset(
        {"nccl-connect-failed", "gloo-connect-failed", "mpi-peers-unreachable", "nccl-init-error", "hccl-socket-timeout"}
    ),
    "storage_io": frozenset(
        {
            "task-blocked", "blocked-on-filesystem", "storage-io-error", "shared-filesystem-stalled",
            "stale-or-lost-mount", "checkpoint-takes-long", "queue-pair-stalled",
        }
    ),
    "node_lost": frozenset(
        {
            "slurm-node-failure", "batch-node-lost", "kubernetes-node-lost", "launcher-lost-node", "ray-node-lost", "node-problem",
        }
    ),
    "cuda_init": frozenset({"cuda-initialisation-failed", "cuda-no-device", "cuda-device-busy"}),
}  # fmt: skip
# What only a kernel can report → the fault classes that it can explain, confirm or rule out.
_ANSWERS: Mapping[str, frozenset[str]] = {
    _DRIVER: _GPU | _SYMPTOMS | {"segfault", "node_lost", "straggler", "throughput_drop", "cuda_init"},
    _OOM: _SYMPTOMS | {"dataloader_fault", "node_lost"},
    _LINK: frozenset({"rdma_link", "fabric_fault", "network_congestion", "nccl_bootstrap", "collective_timeout"})
    | {"peer_failure", "straggler", "throughput_drop", "unknown", "node_lost"},
    _DISK: frozenset({"storage_io"}),
    _HOST: frozenset({"host_hardware", "node_lost", "silent_corruption"}),
}
_WORDS: Mapping[str, str] = {
    _OOM: "out-of-memory kills",
    _LINK: "link faults",
    _DISK: "errors of disks and mounts",
    _HOST: "machine checks",
}
_DRIVERS: Mapping[str, str] = {
    "nvidia": "Xid errors",
    "amd": "errors of the GPU driver",
    "npu": "errors of the NPU driver",
    "neuron": "errors of the accelerator's driver",
    "gaudi": "errors of the accelerator's driver",
    "xpu": "errors of the GPU driver",
}
_COUNTED = {_DRIVER: {"xid", "xid_count"}, _OOM: {"oom_kills", "container_ooms"}}
_TOLD = {_DRIVER: ("xid", "sxid"), _OOM: ("oom_kill",)}  # structures that another source has already given


def missing_evidence(
    verdict: Verdict, evidence: Evidence, facts: Facts, diagnoses: Sequence[Diagnosis], run: RunCircumstances
) -> list[Gap]:
    """Return gaps for missing evidence that could change the answer. `run`: the circumstances of the run."""
    gaps = []
    size = evidence.job.world_size
    ranks = {stream.ref.resource.rank for stream in evidence.streams} - {None}
    if size and ranks and len(ranks) < size:
        absent = _between(sorted(rank for rank in ranks if rank is not None and rank < size), size)
        gaps.append(
            Gap("ranks_missing", "logs", f"no log of rank {absent}", rules_out="whether those ranks failed first")
        )
    if verdict == "insufficient_evidence" and not evidence.panels and _without_step_times(facts):
        gaps.append(
            Gap(
                "step_times_unknown",
                "logs",
                "no times or durations were read from the lines of steps",
                rules_out="whether a rank is slower than the others",
            )
        )
    if not any(True for _ in facts.of_kind("kernel")):
        unknown = list(_of_kernel(verdict, evidence, facts, diagnoses, run))
        if unknown:
            what = f"{listed(unknown)} that only the kernel reports"
            gaps.append(Gap("no_kernel_log", "kernel", "no kernel log was collected", rules_out=what))
    return gaps


def _of_kernel(
    verdict: Verdict, evidence: Evidence, facts: Facts, diagnoses: Sequence[Diagnosis], run: RunCircumstances
) -> Iterator[str]:
    """Yield what only a kernel log could say about the first diagnosis, without what another source says already."""
    if verdict == "no_fault" or run.get("system") == "windows":
        return
    best = diagnoses[0] if diagnoses else None
    if best is not None and best.fault in _RULES and best.rule not in _RULES[best.fault]:
        return
    fault = best.fault if best is not None else "killed" if verdict == "insufficient_evidence" else "unknown"
    for what, faults in _ANSWERS.items():
        told = any(facts.structures(kind) for kind in _TOLD.get(what, ())) or _COUNTED.get(what, set()) & {
            *evidence.panels
        }
        if fault not in faults or told or (what == _LINK and _alone(fault, run)):
            continue
        words = _WORDS.get(what) or _driver(fault, run)
        if words:
            yield words


def _alone(fault: str, run: RunCircumstances) -> bool:
    """Whether no network between nodes is known to matter."""
    networked = fault in ("rdma_link", "fabric_fault", "network_congestion")
    return not networked and (run.get("processes") != "several" or run.get("nodes") == "one")


def _driver(fault: str, run: RunCircumstances) -> str:
    """Return what the kernel log of the run's kind of device holds; empty where the kind has nothing there, or is unknown."""
    device = run.get("device")
    return _DRIVERS.get(device, "errors of the GPU driver" if not device and fault in _GPU else "")


def _between(present: Sequence[int], size: int) -> str:
    """Return the missing numbers below `size` as ranges. The result is bounded, however large `size` is."""
    return spans((a + 1, b - 1) for a, b in pairwise((-1, *present, size)) if b - a > 1)


def _without_step_times(facts: Facts) -> bool:
    """Whether several ranks log steps, and nothing read from their lines shows how long a step takes."""
    ranks: set[int] = set()
    for stream in facts.streams:
        if stream.summary.ref.kind != "job":
            continue
        for point in stream.points:
            if any(v is not None for v in (point.time, point.seconds, point.throughput, point.compute, point.data)):
                return False
            rank = point.rank if point.rank is not None else stream.summary.ref.resource.rank
            if rank is not None:
                ranks.add(rank)
    return len(ranks) > 1
