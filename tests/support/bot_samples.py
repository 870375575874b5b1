"""Reports that the tests of renderers and of the store share. All names and numbers in here are made up."""

from __future__ import annotations

from kb.model import Gap
from kb.report import (
    Decision,
    Diagnosis,
    EvidenceItem,
    Exclusion,
    Explained,
    GpuRef,
    Hang,
    Indicator,
    Indicators,
    JobView,
    NotEvaluated,
    Progress,
    RemedyStep,
    Report,
    Suspect,
    Versions,
    Vote,
)

VERSIONS = Versions(engine="0.1.0", rulebook="2026.3", digest="sha256:5f0c", calibration="2")
NOON = 1_772_366_400.0  # 2026-03-01 12:00:00 UTC

KERNEL_LINE = EvidenceItem(
    id="e1",
    kind="line",
    source="logs/dmesg-gpu-017.log",
    text="NVRM: Xid (PCI:0000:5d:00): 79, pid=88412, GPU has fallen off the bus.",
    line=812,
    offset=90_112,
    time=NOON + 13.25,
    node="gpu-017",
)
RANK_LINE = EvidenceItem(
    id="e2",
    kind="line",
    source="logs/rank-7.log",
    text="RuntimeError: CUDA error: unspecified launch failure\n    Compile with `TORCH_USE_CUDA_DSA` to see more.",
    line=40_213,
    rank=7,
)

FALLEN_GPU = Report(
    id="b7f3a91c02d85e64",
    fingerprint="4ac1",
    verdict="fault",
    phase="failed",
    summary="GPU 3 of gpu-017 fell off the bus at iteration 1198; the other 63 ranks waited for rank 7 until they failed.",
    versions=VERSIONS,
    bundle="night-run",
    window=(NOON - 7200.0, NOON + 900.5),
    job=JobView(id="47110", name="llm-70b", attempt=2, state="FAILED", nodes=8, gpus=64, owner="ana"),
    decision=Decision(
        advice="requeue_without",
        exclude=(Exclusion("gpu-017", "cluster", "its GPU 3 left the bus twice within an hour"),),
        from_checkpoint=1150,
        steps_lost=48,
        gpu_hours_lost=9.64,
        owner="hardware",
        why="the fault stays with the node",
    ),
    progress=Progress(1198, NOON, 1150, "iterating", 5000),
    diagnoses=(
        Diagnosis(
            rank=1,
            fault="gpu_fell_off_bus",
            rule="xid-catalogue",
            rule_version=3,
            title="A GPU fell off the bus",
            summary="GPU 3 of gpu-017 fell off the bus.",
            confidence=0.93,
            band="likely",
            role="root_cause",
            reasons=("the kernel names the GPU", "it comes 31 s before any other failure", "rule right in 41 of 44"),
            suspects=(
                Suspect("gpu", "gpu-017", gpu=GpuRef(3, "GPU-1f0e", "0000:5d:00"), score=0.9, evidence=("e1",)),
                Suspect("rank", "gpu-017", rank=7, local_rank=3, score=0.1, why="its process drove that GPU"),
            ),
            first_seen=NOON + 13.25,
            stage="iterating",
            iteration=1198,
            evidence=(KERNEL_LINE, RANK_LINE),
            explains=(
                Explained("collective_timeout", 63, "0-6,8-63", "Collective timed out in the watchdog"),
                Explained("peer_failure", None, "0,8,16,24,32,40,48,56", "NCCL socket closed by a peer"),
            ),
            remediation=(
                RemedyStep(
                    action="drain_and_reboot",
                    grade="disruptive",
                    text="Drain gpu-017 and reboot it.",
                    scope="cluster",
                    command='scontrol update NodeName=gpu-017 State=DRAIN Reason="Xid 79 on GPU 0000:5d:00, job 47110"',
                    verify="`nvidia-smi -L` lists 8 GPUs",
                ),
                RemedyStep("hardware_ticket", "disruptive", "Hand it to hardware support if it comes back.", "cluster"),
            ),
            cause="A power, link or board fault.",
            impact="The process on that GPU dies, and all who wait for it.",
            owner="hardware",
        ),
        Diagnosis(
            rank=2,
            fault="collective_timeout",
            rule="nccl-watchdog",
            rule_version=1,
            title="A collective timed out",
            summary="63 ranks waited for one.",
            confidence=0.2,
            band="weak",
            role="symptom",
            suspects=tuple(Suspect("rank", rank=rank) for rank in (*range(7), *range(8, 64))),
        ),
    ),
    hang=Hang(called=False, votes=(Vote("silence", "no", "lines until the end"),)),
    gaps=(
        Gap(
            code="denied",
            source="dmesg",
            reason="permission denied",
            scope="gpu-018",
            asked="8 nodes",
            got="7 nodes",
            rules_out="a second faulty GPU there",
        ),
    ),
    not_evaluated=(NotEvaluated("slow-rank", "metrics"), NotEvaluated("pcie-replay", "metrics")),
    streams=72,
    bytes_read=1_840_000_000,
)

UNKNOWN = Report(
    id="0d55e2",
    fingerprint="9e",
    verdict="no_match",
    phase="hung",
    summary="The run stopped making steps after iteration 310 and no rule says why.",
    versions=VERSIONS,
    job=JobView(name="vision-pretrain"),
    progress=Progress(last_iteration=310),
    indicators=Indicators(
        events=(
            Indicator(
                what="shard reader: lease 8841 revoked",
                why="on rank 12 alone, in no earlier run",
                evidence=EvidenceItem(
                    "e1", "line", "logs/rank-12.log", "shard reader: lease 8841 revoked", 5120, rank=12
                ),
            ),
        ),
        nodes=(Indicator("node-b", "last to write, 41 s after the rest"),),
        iterations=(Indicator("iteration 310", "nothing after it"),),
    ),
    hang=Hang(
        called=True,
        votes=(Vote("silence", "yes", "no line for 1,900 s"), Vote("stacks", "not_observable", "no stack samples")),
    ),
    gaps=(Gap("absent", "stacks", "none in the bundle", rules_out="where each rank waits"),),
    not_evaluated=(NotEvaluated("stack-divergence", "stacks"),),
)

HEALTHY = Report(
    id="77aa",
    fingerprint="00",
    verdict="no_fault",
    phase="completed",
    summary="The run reached iteration 5000 of 5000 and ended by itself.",
    versions=VERSIONS,
    progress=Progress(5000, NOON, 5000, "teardown", 5000),
    streams=1,
    bytes_read=900,
)

TOO_LITTLE = Report(
    id="31c4",
    fingerprint="01",
    verdict="insufficient_evidence",
    phase="unknown",
    summary="Only the launcher's output was there, and it ends before the first step.",
    versions=VERSIONS,
    gaps=(
        Gap("absent", "rank logs", "none found", scope="ranks 0-31", rules_out="which rank failed"),
        Gap("absent", "kernel log", "not collected"),
    ),
    not_evaluated=(NotEvaluated("xid-catalogue", "kernel log"),),
)

EVERY = (FALLEN_GPU, UNKNOWN, HEALTHY, TOO_LITTLE)
