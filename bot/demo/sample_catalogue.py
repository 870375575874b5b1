"""The catalogue for sample incidents: kinds of jobs, faults with log lines, close-out actions."""

from __future__ import annotations

from dataclasses import dataclass

ACTIONS = (
    "node drained and swapped",
    "restarted from the last checkpoint",
    "fixed in the code",
    "image rolled back",
    "",
)


@dataclass(frozen=True, slots=True)
class JobKind:
    """A kind of job: its size, and the mean hours until one of its runs fails."""

    name: str
    owner: str
    framework: str
    image: str
    partition: str
    nodes: int
    to_failure: float


@dataclass(frozen=True, slots=True)
class SampleFault:
    """A fault: its weight, the seconds until the run stops, its log line, and whether a node is to blame."""

    fault: str
    weight: float
    detection: tuple[float, float]
    line: str
    node: bool = False


JOB_KINDS = (
    JobKind("llm-70b", "ana", "megatron", "train:24.10", "large", 32, 22.0),
    JobKind("llm-13b", "bo", "deepspeed", "train:24.10", "large", 8, 50.0),
    JobKind("moe-8x7b", "chidi", "megatron", "train:25.02", "large", 16, 30.0),
    JobKind("vlm-finetune", "dee", "fsdp", "vision:3.1", "small", 2, 70.0),
    JobKind("rlhf-7b", "ana", "trl", "train:25.02", "small", 1, 60.0),
    JobKind("asr-large", "eva", "lightning", "speech:1.9", "small", 4, 90.0),
)
FAULTS = (
    SampleFault("nvlink_fault", 9, (20, 90), "NVRM: Xid (PCI:0000:5d:00): 74, NVLink: fatal error on link 4", node=True),
    SampleFault("gpu_memory_ecc", 7, (15, 60), "NVRM: Xid (PCI:0000:0f:00): 63, Row Remapper: uncorrectable error", node=True),
    SampleFault("gpu_fell_off_bus", 5, (30, 120), "NVRM: Xid (PCI:0000:5d:00): 79, GPU has fallen off the bus.", node=True),
    SampleFault("rdma_link", 6, (600, 1900), "mlx5_0: port 1 link down, retry counter exceeded", node=True),
    SampleFault("host_hardware", 2, (60, 300), "mce: [Hardware Error]: Machine check events logged, DIMM 7", node=True),
    SampleFault("cuda_oom", 12, (5, 20), "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"),
    SampleFault("code_bug", 10, (3, 15), "AttributeError: 'NoneType' object has no attribute 'shape'"),
    SampleFault("config_error", 6, (3, 15), "ValueError: global batch size 1020 is not divisible by 64"),
    SampleFault("checkpoint_save", 5, (40, 400), "OSError: [Errno 122] Disk quota exceeded: 'iter_0012000'"),
    SampleFault("storage_io", 6, (120, 900), "OSError: [Errno 5] Input/output error: '/data/shards/00412.bin'"),
    SampleFault("dataloader_fault", 6, (10, 60), "RuntimeError: DataLoader worker (pid 4411) exited unexpectedly"),
    SampleFault("collective_timeout", 8, (1800, 1900), "Watchdog caught collective operation timeout: ALLREDUCE, 1800000 ms"),
    SampleFault("node_lost", 4, (60, 400), "slurmstepd: error: *** STEP CANCELLED DUE TO NODE FAILURE ***", node=True),
    SampleFault("loss_not_finite", 3, (5, 600), "iteration 8412: lm loss: nan, skipped iterations: 12"),
)  # fmt: skip
