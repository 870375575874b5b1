"""Synthetic jobs for the measurements: machines, a healthy start, and the messages of the survivors when a job ends.

A `Site` is where a job runs and with what software; a `Script` collects who says what and when; `write_logs` lays that
out as a person would find it: a file a rank, a torchrun tree, a log a node, or one merged log. Times are seconds since
the epoch; every stamp is told by the clock of the node that prints it. Texts follow the releases of torch (1.10 to 2.9)
and NCCL (2.10 to 2.28) that they name. Everything follows from the `random.Random` that is handed in.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from random import Random

Release = tuple[int, int]
Frame = tuple[str, int, str, str]  # path, line, function, code

# torch, and the NCCL that came with it or was used with it
RELEASES: tuple[tuple[Release, str], ...] = (
    ((1, 10), "2.10.3"),
    ((1, 13), "2.14.3"),
    ((2, 1), "2.18.1"),
    ((2, 3), "2.20.5"),
    ((2, 4), "2.20.5"),
    ((2, 6), "2.21.5"),
    ((2, 7), "2.26.2"),
    ((2, 9), "2.28.3"),
)
NAMES = ("node-{a}", "gpu-b{i:02d}", "worker-{n}", "dgx-h100-{i:03d}", "ip-10-4-{i}-203", "llm-13b-worker-{n}")
PER_RANK_PREFIX = (2, 3)  # from this version on, torch prefixes a rank's excepthook and C++ log lines with [rankN]:
TERM, ABORT, KILL, SEGV, BUS = 15, 6, 9, 11, 7
SIGNALS = {TERM: "SIGTERM", ABORT: "SIGABRT", KILL: "SIGKILL", SEGV: "SIGSEGV", BUS: "SIGBUS"}


@dataclass(frozen=True, slots=True)
class Site:
    """Where a job runs: nodes in rank order, ranks a node, software, the start, and each node's clock error in seconds."""

    nodes: tuple[str, ...]
    per_node: int
    torch: Release
    nccl: str
    framework: str
    start: float
    skew: Mapping[str, float]
    pids: tuple[int, ...]
    job: int

    @property
    def world(self) -> int:
        """How many ranks there are."""
        return len(self.nodes) * self.per_node

    @property
    def packages(self) -> str:
        """The site-packages folder."""
        minor = 8 if self.torch < (2, 0) else 10 if self.torch < (2, 6) else 12
        return f"/opt/conda/lib/python3.{minor}/site-packages"

    def node(self, rank: int) -> str:
        """Return the node of a rank."""
        return self.nodes[rank // self.per_node]

    def local(self, rank: int) -> int:
        """Return a rank's number within its node."""
        return rank % self.per_node

    def ranks(self, node: str) -> tuple[int, ...]:
        """Return the ranks of a node."""
        first = self.nodes.index(node) * self.per_node
        return tuple(range(first, first + self.per_node))

    def address(self, node: str) -> str:
        """Return a node's address."""
        return f"10.{20 + self.job % 7}.{self.job % 100}.{11 + 3 * self.nodes.index(node)}"

    def bus(self, rank: int) -> str:
        """Return the PCI bus of a rank's GPU."""
        return ("18", "2a", "3a", "5d", "9a", "ab", "ba", "db")[self.local(rank) % 8]

    def clock(self, node: str, at: float) -> datetime:
        """Return the time on the node's clock."""
        return datetime.fromtimestamp(at + self.skew[node], UTC)


@dataclass(frozen=True, slots=True)
class Said:
    """A block of lines. `by`: a rank, or "agent NODE", "kernel NODE", "health NODE", "journal NODE", "scheduler", "pods", "lsf"."""

    at: float
    by: int | str
    text: str
    out: bool = False


@dataclass(slots=True)
class Script:
    """All output of one job."""

    said: list[Said] = field(default_factory=list)

    def say(self, at: float, by: int | str, text: str, *, out: bool = False) -> None:
        """Add a block; `out`: to stdout."""
        self.said.append(Said(at, by, text, out))

    def cut(self, at: float, by: int | str) -> None:
        """Remove the output of `by` from `at` on."""
        self.said = [item for item in self.said if item.by != by or item.at < at]


def make_site(rng: Random, nodes: int, per_node: int, framework: str, release: Release | None = None) -> Site:
    """Return a site with random names, processes and clocks; `release`: a required version of torch."""
    torch, nccl = rng.choice([pair for pair in RELEASES if release in (None, pair[0])])
    pattern, first = rng.choice(NAMES), rng.randrange(1, 40)
    names = tuple(pattern.format(a="abcdefgh"[n], n=n, i=first + n) for n in range(nodes))
    base = [rng.randrange(900, 400_000) for _ in names]
    pids = tuple(base[rank // per_node] + 1 + rank % per_node for rank in range(nodes * per_node))
    year = 2022 + max(0, torch[1] // 3) if torch >= (2, 0) else 2022
    start = datetime(year, rng.randrange(1, 13), rng.randrange(1, 28), rng.randrange(24), 7, tzinfo=UTC).timestamp()
    skew = {name: rng.uniform(-1.0, 1.0) for name in names}  # up to two seconds between two of them
    return Site(names, per_node, torch, nccl, framework, start, skew, pids, rng.randrange(10_000, 99_999))


# --- a healthy start -------------------------------------------------------------------------------------------------


def nccl_start(site: Site, rank: int) -> str:
    """NCCL's lines of one rank up to `Init COMPLETE`."""
    node, pid, device = site.node(rank), site.pids[rank], site.local(rank)
    head = f"{node}:{pid}:{pid} [{device}] NCCL INFO"
    tail = f"{node}:{pid}:{pid + 700} [{device}] NCCL INFO"
    comm = f"comm 0x{0x55D0_0000_0000 + 4096 * pid:x} rank {rank} nranks {site.world} cudaDev {device}"
    nvml = f" nvmlDev {device}" if site.torch >= (2, 1) else ""
    ident = f" commId 0x{site.job * 7_919_000_113:x}" if site.torch >= (2, 1) else ""
    lines = [f"{head} Bootstrap : Using eth0:{site.address(node)}<0>", f"{tail} Using network IB"]
    if rank == 0:
        lines.append(f"NCCL version {site.nccl}+cuda{'11.8' if site.torch < (2, 3) else '12.4'}")
    lines.append(f"{tail} Channel 00/0 : {rank}[{device}] -> {(rank + 1) % site.world}[{(device + 1) % 8}] via P2P/IPC")
    lines.append(f"{tail} {comm}{nvml} busId {site.bus(rank)}000{ident} - Init COMPLETE")
    return "\n".join(lines)


def _megatron(site: Site, step: int, at: float, loss: float, took: float) -> str:
    when = site.clock(site.nodes[-1], at)
    return (
        f" [{when:%Y-%m-%d %H:%M:%S}] iteration {step:8d}/  500000 | consumed samples: {step * 512:12d} |"
        f" elapsed time per iteration (ms): {took * 1e3:.1f} | learning rate: 2.987E-04 | global batch size:   512 |"
        f" lm loss: {loss:.6E} | loss scale: 1.0 | grad norm: {0.3 + loss / 9:.3f} |"
        f" number of skipped iterations:   0 | number of nan iterations:   0 |"
    )


def _deepspeed(site: Site, step: int, at: float, loss: float, took: float) -> str:
    when = f"[{site.clock(site.nodes[0], at):%Y-%m-%d %H:%M:%S},{step % 1000:03d}]"
    return (
        f"{when} [INFO] [logging.py:96:log_dist] [Rank 0] step={step}, skipped=0, lr=[9.6e-06], mom=[(0.9, 0.95)]\n"
        f"{when} [INFO] [timer.py:260:stop] epoch=0/micro_step={step * 4}/global_step={step},"
        f" RunningAvgSamplesPerSec={64 / took:.4f}, CurrSamplesPerSec={63.1 / took:.4f}, MemAllocated=31.2GB,"
        f" MaxMemAllocated=58.7GB\nsteps: {step} loss: {loss:.4f} iter time (s): {took:.3f} samples/sec: {64 / took:.3f}"
    )


def _hf(_site: Site, step: int, _at: float, loss: float, _took: float) -> str:
    return f"{{'loss': {loss:.4f}, 'grad_norm': {0.4 + loss / 7:.6f}, 'learning_rate': 1.8e-05, 'epoch': {step / 900:.2f}}}"


def _lightning(_site: Site, step: int, _at: float, loss: float, took: float) -> str:
    share = step / 9000
    bar = "#" * int(share * 10)
    spent = f"{int(step * took) // 60:02d}:{int(step * took) % 60:02d}"
    return (
        f"Epoch 0:  {int(100 * share):2d}%|{bar:10}| {step}/9000 [{spent}<2:41:09, {1 / took:5.2f}it/s, v_num=4,"
        f" train_loss={loss:.3f}]"
    )


def _titan(site: Site, step: int, at: float, loss: float, took: float) -> str:
    when = site.clock(site.nodes[0], at)
    return (
        f"[titan] {when:%Y-%m-%d %H:%M:%S},{step % 1000:03d} - root - INFO - step: {step:2d}  loss: {loss:7.4f}"
        f"  memory: 61.47GiB(77.66%)  tps: {int(9000 / took):,}  tflops: {410 / took:.2f}  mfu: {41.5 / took:.2f}%"
    )


def _nemo(_site: Site, step: int, _at: float, loss: float, took: float) -> str:
    return (
        f"Training epoch 0, iteration {step}/99999 | lr: 8.991e-05 | global_batch_size: 256 | global_step: {step} |"
        f" reduced_train_loss: {loss:.3f} | train_step_timing in s: {took:.3f} | consumed_samples: {256 * (step + 1)}"
    )


def _plain(site: Site, step: int, at: float, loss: float, took: float) -> str:
    when = site.clock(site.nodes[0], at)
    return (
        f"{when:%Y-%m-%d %H:%M:%S},{step % 1000:03d} INFO train: step {step} | loss {loss:.4f} | grad norm"
        f" {0.2 + loss / 8:.3f} | {took * 1e3:.0f} ms/step | mem 54.1 GB"
    )


def _maxtext(_site: Site, step: int, _at: float, loss: float, took: float) -> str:
    return (
        f"completed step: {step}, seconds: {took:.3f}, TFLOP/s/device: {640 / took:.3f}, Tokens/s/device: {12_288 / took:.3f},"
        f" total_weights: 524288, loss: {loss:.3f}"
    )


def _composer(_site: Site, step: int, _at: float, loss: float, took: float) -> str:
    return (
        f"[batch={step}/24000]:\n\t Train time/batch: {step - 1}\n\t Train loss/train/total: {loss:.4f}\n"
        f"\t Train throughput/batches_per_sec: {1 / took:.4f}\n\t Train lr-DecoupledAdamW/group0: 0.0003"
    )


def _fairseq(site: Site, step: int, at: float, loss: float, took: float) -> str:
    when = site.clock(site.nodes[0], at)
    return (
        f"{when:%Y-%m-%d %H:%M:%S} | INFO | train_inner | epoch 001:  {step:5d} / 30910 loss={loss:.3f}, ppl={2**loss:.2f},"
        f" wps={65_000 / took:.1f}, ups={1 / took:.2f}, wpb=65536, bsz=128, num_updates={step}, lr=0.0003, gnorm={0.3 + loss / 8:.3f},"
        f" train_wall={took:.0f}, gb_free=11.2, wall={step * took:.0f}"
    )


def _mmengine(site: Site, step: int, at: float, loss: float, took: float) -> str:
    when = site.clock(site.nodes[0], at)
    return (
        f"{when:%m/%d %H:%M:%S} - mmengine - INFO - Iter(train) [{step:6d}/160000]  lr: 9.8721e-05  eta: 1 day, 4:02:11  time: {took:.4f}"
        f"  data_time: 0.0112  memory: 31288  loss: {loss:.4f}"
    )


FRAMEWORKS: Mapping[str, Callable[[Site, int, float, float, float], str]] = {
    "megatron": _megatron,
    "deepspeed": _deepspeed,
    "hf": _hf,
    "lightning": _lightning,
    "torchtitan": _titan,
    "nemo": _nemo,
    "pytorch-ddp": _plain,
    "ray": _plain,
    "maxtext": _maxtext,
    "composer": _composer,
    "fairseq": _fairseq,
    "mmengine": _mmengine,
}


def greeting(site: Site, rank: int) -> str:
    """Return a rank's output before the first step."""
    when = site.clock(site.node(rank), site.start + 31)
    stamp = f"{when:%Y-%m-%d %H:%M:%S}"
    told = {
        "megatron": f"> initialized tensor model parallel with size 4\n> setting random seeds to 1234 ...\n"
        f"[rank {rank}] > loading dataset index\n > finished creating GPT datasets ...\n"
        f"[after dataloaders are built] datetime: {stamp} ",
        "deepspeed": f"[{stamp},114] [INFO] [real_accelerator.py:203:get_accelerator] Setting ds_accelerator to cuda"
        f" (auto detect)\n[{stamp},402] [INFO] [comm.py:652:init_distributed] cdb=None",
        "hf": "***** Running training *****\n  Num examples = 412,114\n  Num Epochs = 3\n  Gradient Accumulation steps = 2",
        "lightning": f"Initializing distributed: GLOBAL_RANK: {rank}, MEMBER: {rank + 1}/{site.world}\n"
        f"LOCAL_RANK: {site.local(rank)} - CUDA_VISIBLE_DEVICES: [0,1,2,3,4,5,6,7]",
        "torchtitan": f"[titan] {stamp},221 - root - INFO - Building 1-D device mesh with ['dp_shard'], [{site.world}]\n"
        f"[titan] {stamp},874 - root - INFO - Training starts at step 1",
        "nemo": f"[NeMo I {stamp} megatron_init:314] Rank {rank} has data parallel group : [{rank}]",
    }
    return told.get(
        site.framework, f"{stamp},101 INFO train: rank {rank}: model has 6.74 B parameters, bf16, seed 1234"
    )


def reporter(site: Site) -> int:
    """Return the rank that prints the iteration lines: the last in Megatron's kin, else the first."""
    return site.world - 1 if site.framework == "megatron" else 0


def begin(site: Site, rng: Random, steps: int, *, first: int | None = None, nccl: bool = True) -> tuple[Script, float]:
    """Return a healthy start with `steps` steps, and the time right after the last one."""
    script = Script()
    for rank in range(site.world):
        script.say(site.start + rng.uniform(20, 24), rank, greeting(site, rank))
        if nccl:
            script.say(site.start + rng.uniform(40, 44), rank, nccl_start(site, rank))
    took, at = rng.uniform(0.7, 9.0), site.start + 60
    step, loss = first if first is not None else rng.randrange(100, 9000), rng.uniform(1.9, 3.4)
    for _ in range(steps):
        lasted = took * rng.uniform(0.97, 1.04)
        at, step, loss = at + lasted, step + 1, loss * rng.uniform(0.993, 1.003)
        line = FRAMEWORKS[site.framework](site, step, at, loss, lasted)
        script.say(at, reporter(site), line, out=True)
    return script, at + 0.2


# --- what a rank prints -----------------------------------------------------------------------------------------------

LOOPS: Mapping[str, tuple[Frame, ...]] = {
    "megatron": (
        ("/workspace/megatron/pretrain_gpt.py", 264, "<module>", "pretrain("),
        ("/workspace/megatron/megatron/training/training.py", 358, "pretrain", "iteration, n = train("),
        ("/workspace/megatron/megatron/training/training.py", 1269, "train", "train_step(forward_step_func,"),
    ),
    "deepspeed": (
        ("/workspace/sft/train.py", 402, "<module>", "main()"),
        ("/workspace/sft/train.py", 361, "main", "loss = step(engine, batch)"),
    ),
    "hf": (
        ("/workspace/sft/run_clm.py", 657, "<module>", "main()"),
        ("/workspace/sft/run_clm.py", 605, "main", "train_result = trainer.train(resume_from_checkpoint=checkpoint)"),
        ("{packages}/transformers/trainer.py", 2171, "train", "return inner_training_loop("),
        (
            "{packages}/transformers/trainer.py",
            2531,
            "_inner_training_loop",
            "tr_loss_step = self.training_step(model, inputs)",
        ),
    ),
    "lightning": (
        ("/workspace/exp/fit.py", 88, "<module>", "trainer.fit(model, datamodule=data)"),
        ("{packages}/lightning/pytorch/trainer/trainer.py", 543, "fit", "call._call_and_handle_interrupt("),
        ("{packages}/lightning/pytorch/loops/fit_loop.py", 363, "advance", "self.epoch_loop.run(self._data_fetcher)"),
    ),
}
PLAIN_LOOP: tuple[Frame, ...] = (
    ("/workspace/lm/train.py", 318, "<module>", "main()"),
    ("/workspace/lm/train.py", 274, "main", "trainer.run(steps)"),
    ("/workspace/lm/loop.py", 141, "run", "loss = self.step(batch)"),
)


def prefixed(site: Site, rank: int, text: str) -> str:
    """The text as torch's excepthook prints it: with the rank in front of each line where the release does that."""
    if site.torch < PER_RANK_PREFIX:
        return text
    return "\n".join(f"[rank{rank}]: {line}".rstrip() if line else f"[rank{rank}]:" for line in text.split("\n"))


def trace(site: Site, rank: int, frames: Iterable[Frame], last: str, *, loop: bool = True, joined: bool = True) -> str:
    """A Python traceback ending in `last`; `loop` puts the framework's training loop on top; `joined`: a group is up."""
    above = LOOPS.get(site.framework, PLAIN_LOOP) if loop else ()
    lines = ["Traceback (most recent call last):"]
    for path, line, function, code in (*above, *frames):
        lines += [f'  File "{path.format(packages=site.packages)}", line {line}, in {function}', f"    {code}"]
    text = "\n".join([*lines, last])
    return prefixed(site, rank, text) if joined else text


def cpp(site: Site, rank: int, at: float, line: int, text: str) -> str:
    """Return a line of torch's C++ log."""
    if site.torch < PER_RANK_PREFIX:
        return f"[E ProcessGroupNCCL.cpp:{line}] {text}"
    if site.torch < (2, 4):
        return f"[rank{rank}]:[E ProcessGroupNCCL.cpp:{line}] {text}"
    when = site.clock(site.node(rank), at)
    stamp = f"{when.month}{when:%d %H:%M:%S}.{when.microsecond:06d}{rank % 1000:03d}"
    return f"[rank{rank}]:[E{stamp} ProcessGroupNCCL.cpp:{line}] {text}"


@dataclass(frozen=True, slots=True)
class Work:
    """A collective in flight, and the rank's progress."""

    seq: int
    op: str = "ALLREDUCE"
    numel: int = 16_777_216
    out: int = 16_777_216
    timeout: int = 600  # seconds
    enqueued: int = 2  # beyond seq


def watchdog(site: Site, rank: int, at: float, work: Work) -> str:
    """Return the output of c10d's watchdog when a collective timed out on this rank, until the process aborts."""
    limit, ran = work.timeout * 1000, work.timeout * 1000 + 7 + 13 * (rank % 7)
    sizes = f"SeqNum={work.seq}, " if site.torch >= (2, 0) else ""
    shape = f", NumelIn={work.numel}, NumelOut={work.out}" if site.torch >= (2, 1) else ""
    what = f"WorkNCCL({sizes}OpType={work.op}{shape}, Timeout(ms)={limit}) ran for {ran} milliseconds"
    caught = f"[Rank {rank}] Watchdog caught collective operation timeout: {what} before timing out."
    down = (
        "Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU"
        " operations might run on corrupted/incomplete data."
    )
    if site.torch < (2, 0):
        whole = f"{down} To avoid this inconsistency, we are taking the entire process down."
        end = f"terminate called after throwing an instance of 'std::runtime_error'\n  what():  {caught}"
        return "\n".join([cpp(site, rank, at, 587, caught), cpp(site, rank, at, 341, whole), end])
    lines = [cpp(site, rank, at, 607 if site.torch >= (2, 4) else 474, caught), *_standing(site, rank, at, work)]
    who = f"[Rank {rank}] " if site.torch >= PER_RANK_PREFIX else ""
    lines.append(cpp(site, rank, at, 621, who + down))
    lines.append(cpp(site, rank, at, 627, f"{who}To avoid data inconsistency, we are taking the entire process down."))
    return "\n".join([*lines, *_watchdog_end(site, rank, at, caught, "checkTimeout")])


def _group(site: Site, rank: int) -> str:
    if site.torch < (2, 6):
        return f"[PG 0 Rank {rank}]" if site.torch < (2, 4) else f"[PG 0 (default_pg) Rank {rank}]"
    return f"[PG ID 0 PG GUID 0(default_pg) Rank {rank}]"


def _standing(site: Site, rank: int, at: float, work: Work) -> list[str]:
    """Return the lines with the timed-out work, and the last enqueued and completed."""
    group, last = _group(site, rank), work.seq + work.enqueued
    if site.torch < PER_RANK_PREFIX:
        return []
    status = f"last enqueued NCCL work: {last}, last completed NCCL work: {work.seq - 1}."
    if site.torch < (2, 4):
        return [cpp(site, rank, at, 1537, f"{group} Timeout at NCCL work: {work.seq}, {status}")]
    seen = "Exception (either an error or timeout) detected by watchdog at work"
    if site.torch < (2, 7):
        return [cpp(site, rank, at, 1785, f"{group} {seen}: {work.seq}, {status}")]
    status = f"PG status: last enqueued work: {last}, last completed work: {work.seq - 1}"
    return [
        cpp(site, rank, at, 2271, f"{group}  failure detected by watchdog at work sequence id: {work.seq} {status}"),
        cpp(
            site,
            rank,
            at,
            670,
            "Stack trace of the failed collective not found, potentially because FlightRecorder is disabled. You can"
            " enable it by setting TORCH_NCCL_TRACE_BUFFER_SIZE to a non-zero value.",
        ),
    ]


def _watchdog_end(site: Site, rank: int, at: float, why: str, raised: str) -> list[str]:
    kind = "c10::DistBackendError" if site.torch >= PER_RANK_PREFIX else "std::runtime_error"
    group = f"{_group(site, rank)} Process group" if site.torch >= PER_RANK_PREFIX else f"[Rank {rank}] NCCL"
    whole = f"{group} watchdog thread terminated with exception: {why}"
    lines = [cpp(site, rank, at, 1515 if site.torch >= PER_RANK_PREFIX else 915, whole)]
    source = "../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp"
    libc10, libcuda = f"{site.packages}/torch/lib/libc10.so", f"{site.packages}/torch/lib/libtorch_cuda.so"
    if site.torch >= PER_RANK_PREFIX:
        lines += [
            f"Exception raised from {raised} at {source}:609 (most recent call first):",
            f"frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x96 (0x7f3b6d41df86 in {libc10})",
            f"frame #1: c10d::ProcessGroupNCCL::ncclCommWatchdog() + 0x10c (0x7f3b6e7236fc in {libcuda})",
            "",
        ]
    return [*lines, f"terminate called after throwing an instance of '{kind}'", f"  what():  {whole}"]


def dump_signal(site: Site, rank: int, at: float, source: int, seq: int) -> str:
    """Return the output of a rank without work in flight when another one timed out (torch 2.6 and later)."""
    text = (
        f"{_group(site, rank)} Received a dump signal due to a collective timeout from  rank {source} and we will try our"
        f" best to dump the debug info. Last enqueued NCCL work: {seq}, last completed NCCL work: {seq}.This is most"
        " likely caused by incorrect usages of collectives, e.g., wrong sizes used across ranks, the order of collectives"
        " is not same for all ranks or the scheduled collective, for some reason, didn't run. Additionally, this can be"
        " caused by GIL deadlock or other reasons such as network errors or bugs in the communications library"
        " (e.g. NCCL), etc. "
    )
    ready = f"{_group(site, rank)} ProcessGroupNCCL preparing to dump debug info. Include stack trace: 1"
    return cpp(site, rank, at, 1746, text) + "\n" + cpp(site, rank, at, 1536, ready)


def nccl_warn(site: Site, rank: int, source: str, text: str, at: float) -> str:
    """Return a WARN line of NCCL, with the preceding empty line and, from 2.26 on, timestamp."""
    stamp = f"[{site.clock(site.node(rank), at):%Y-%m-%d %H:%M:%S}] " if site.torch >= (2, 7) else ""
    return f"\n{stamp}{site.node(rank)}:{site.pids[rank]}:{site.pids[rank] + 901} [{site.local(rank)}] {source} NCCL WARN {text}"


def remote_closed(site: Site, rank: int, at: float, peer: int) -> str:
    """Return a victim whose peer's process went away: NCCL's warning, then the watchdog's exception."""
    old = site.torch < (2, 0)
    other = f"{site.address(site.node(peer))}<{33_000 + peer * 17}>"
    close = f"{'Net' if old else 'socketProgress'}: Connection closed by remote peer {site.node(peer)}<{33_000 + peer * 17}>"
    close = close.replace("Net:", "Net :")
    reset = f"socketProgressOpt: Call to recv from {other} failed : Connection reset by peer"
    said = close if (rank + peer) % 3 else reset
    head = f"{site.node(rank)}:{site.pids[rank]}:{site.pids[rank] + 901} [{site.local(rank)}] NCCL INFO"
    lines = [nccl_warn(site, rank, "misc/socket.cc:538" if old else "misc/socket.cc:49", said, at)]
    lines += [f"{head} misc/socket.cc:749 -> 6", f"{head} transport/net_socket.cc:493 -> 6"]
    lines += [f"{head} proxy.cc:698 -> 6", f"{head} proxy.cc:878 -> 6 [Progress Thread]"]
    return "\n".join([*lines, *remote_error(site, rank, at, said)])


def remote_error(site: Site, rank: int, at: float, last: str) -> list[str]:
    """Return the watchdog's exception for an NCCL error that came from elsewhere; `last` is NCCL's last error."""
    where = "../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1275" if site.torch < (2, 4) else "NCCLUtils.hpp:268"
    if site.torch < (2, 0):
        text = (
            f"NCCL error: unhandled system error, NCCL version {site.nccl}\nncclSystemError: System call (e.g. socket,"
        )
        text += f" malloc) or external library call failed or device error.\nLast error:\n{last}"
        return [cpp(site, rank, at, 737, f"[Rank {rank}] NCCL watchdog thread terminated with exception: {text}")]
    text = f"NCCL error: remote process exited or there was a network error, NCCL version {site.nccl}\n"
    text += "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely."
    text += f"\nLast error:\n{last}"
    return _watchdog_end(site, rank, at, f"{text}\nException raised from {where}", "checkForNCCLErrorsInternal")


def remote_raised(site: Site, rank: int, peer: int) -> str:
    """Return the output of a victim that gets the error in Python."""
    frames = [
        (f"{site.packages}/torch/distributed/c10d_logger.py", 83, "wrapper", "return func(*args, **kwargs)"),
        (
            f"{site.packages}/torch/distributed/distributed_c10d.py",
            2806,
            "all_reduce",
            "work = group.allreduce([tensor], opts)",
        ),
    ]
    name = "torch.distributed.DistBackendError" if site.torch >= (2, 0) else "RuntimeError"
    last = (
        f"{name}: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1275, remote process exited or there"
        f" was a network error, NCCL version {site.nccl}\nncclRemoteError: A call failed possibly due to a network error"
        f" or a remote process exiting prematurely.\nLast error:\nsocketProgress: Connection closed by remote peer"
        f" {site.node(peer)}<{33_000 + peer * 17}>"
    )
    return trace(site, rank, frames, last)


def gloo_closed(site: Site, rank: int, peer: int) -> str:
    """Return a victim on gloo."""
    line = 598 if site.torch < (2, 0) else 534
    end = f"[{site.address(site.node(peer))}]:{20_000 + 31 * peer}"
    hint = (
        ". This is typically caused by a remote worker crashing. Check the logs of the remote worker for the root cause"
    )
    last = f"RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:{line}] Connection closed by peer {end}"
    frames = [
        (f"{site.packages}/torch/distributed/distributed_c10d.py", 4165, "barrier", "work.wait()"),
    ]
    return trace(site, rank, frames, last + (hint if site.torch >= (2, 9) else ""))


# --- what launchers print ---------------------------------------------------------------------------------------------


def elastic(site: Site, node: str, at: float, text: str, *, error: bool = False, line: int = 897) -> str:
    """Return a line of torchrun's agent."""
    when = site.clock(node, at)
    if site.torch < (2, 1):
        return f"{'ERROR' if error else 'WARNING'}:torch.distributed.elastic.multiprocessing.api:{text}"
    if site.torch < PER_RANK_PREFIX:
        level = "ERROR" if error else "WARNING"
        return f"[{when:%Y-%m-%d %H:%M:%S},{line % 1000:03d}] torch.distributed.elastic.multiprocessing.api: [{level}] {text}"
    place = "site-packages/torch" if site.torch >= (2, 5) else "torch"
    parent = site.pids[site.ranks(node)[0]] - 1 if site.torch >= (2, 5) else 140_538_811_684_672
    stamp = f"{'E' if error else 'W'}{when:%m%d %H:%M:%S}.{when.microsecond:06d}"
    return f"{stamp} {parent} {place}/distributed/elastic/multiprocessing/api.py:{line}] {text}"


def _failure(site: Site, number: int, at: float, rank: int, code: int) -> list[str]:
    signal = f"Signal {-code} ({SIGNALS.get(-code, '?')}) received by PID {site.pids[rank]}"
    told = signal if code < 0 else "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"
    return [
        f"[{number}]:",
        f"  time      : {site.clock(site.node(rank), at):%Y-%m-%d_%H:%M:%S}",
        f"  host      : {site.node(rank)}",
        f"  rank      : {rank} (local_rank: {site.local(rank)})",
        f"  exitcode  : {code} (pid: {site.pids[rank]})",
        "  error_file: <N/A>",
        f"  traceback : {told}",
    ]


def elastic_end(site: Site, node: str, at: float, failed: Sequence[tuple[int, int]], script: str = "train.py") -> str:
    """Write the agent's end: ranks that get SIGTERM, failed ranks, the block. `failed`: rank and exit code, the first observed first."""
    (root, code), rest = failed[0], failed[1:]
    gone = {rank for rank, _ in failed}
    lines = [
        elastic(site, node, at, f"Sending process {site.pids[rank]} closing signal SIGTERM")
        for rank in site.ranks(node)
        if rank not in gone
    ]
    place = f"local_rank: {site.local(root)} (pid: {site.pids[root]}) of binary: /opt/conda/bin/python"
    lines.append(elastic(site, node, at + 1, f"failed (exitcode: {code}) {place}", error=True, line=869))
    lines += ["Traceback (most recent call last):", '  File "/opt/conda/bin/torchrun", line 8, in <module>']
    lines += ["    sys.exit(main())", f'  File "{site.packages}/torch/distributed/run.py", line 910, in run']
    lines += [
        "    elastic_launch(",
        f'  File "{site.packages}/torch/distributed/launcher/api.py", line 269, in launch_agent',
    ]
    lines += ["    raise ChildFailedError(", "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: "]
    lines += ["=" * 60, f"{script} FAILED", "-" * 60, "Failures:"]
    for number, (rank, its) in enumerate(rest, 1):
        lines += _failure(site, number, at, rank, its)
    lines += [] if rest else ["  <NO_OTHER_FAILURES>"]
    return "\n".join(
        [*lines, "-" * 60, "Root Cause (first observed failure):", *_failure(site, 0, at, root, code), "=" * 60]
    )


def deepspeed_end(site: Site, node: str, at: float, rank: int, code: int) -> str:
    """DeepSpeed's launcher on one node."""
    stamp = f"[{site.clock(node, at):%Y-%m-%d %H:%M:%S},{at * 1000 % 1000:03.0f}]"
    kills = [
        f"{stamp} [INFO] [launch.py:319:sigkill_handler] Killing subprocess {site.pids[item]}"
        for item in site.ranks(node)
    ]
    command = (
        f"['/usr/bin/python3', '-u', 'train.py', '--local_rank={site.local(rank)}', '--deepspeed', 'ds_config.json']"
    )
    return "\n".join(
        [*kills, f"{stamp} [ERROR] [launch.py:325:sigkill_handler] {command} exits with return code = {code}"]
    )


def srun_end(site: Site, at: float, failed: Sequence[tuple[int, int]]) -> str:
    """Return the end that srun prints where every rank is a task. `failed`: rank and exit code, as srun saw them."""
    signals = {ABORT: "Aborted (core dumped)", KILL: "Killed", SEGV: "Segmentation fault (core dumped)"}
    when = site.clock(site.nodes[0], at)
    lines = []
    for rank, code in failed:
        how = f"Exited with exit code {code}" if code > 0 else signals.get(-code, "Terminated")
        lines.append(f"srun: error: {site.node(rank)}: task {rank}: {how}")
    step = f"STEP {site.job}.0 ON {site.nodes[0]}"
    stop = [
        f"srun: Terminating StepId={site.job}.0",
        f"slurmstepd: error: *** {step} CANCELLED AT {when:%Y-%m-%dT%H:%M:%S} ***",
    ]
    return "\n".join([*lines[:1], *stop, *lines[1:]])


# --- what a node's kernel prints --------------------------------------------------------------------------------------


def kernel(site: Site, node: str, at: float, texts: Sequence[str], form: int) -> str:
    """Kernel lines in one of three forms: syslog, `dmesg -T`, ISO."""
    lines = []
    for index, text in enumerate(texts):
        when = site.clock(node, at + 0.03 * index)
        uptime = f"[{when.timestamp() % 9_000_000:14.6f}]"
        heads = (
            f"{when:%b %d %H:%M:%S} {node} kernel: {uptime} ",
            f"[{when:%a %b %d %H:%M:%S %Y}] ",
            f"{when:%Y-%m-%dT%H:%M:%S}.{when.microsecond:06d}+00:00 {node} kernel: ",
        )
        lines.append(heads[form % 3] + text)
    return "\n".join(lines)


KERNEL_CHATTER = (
    "perf: interrupt took too long (2513 > 2500), lowering kernel.perf_event_max_sample_rate to 79500",
    "nvidia-uvm: Loaded the UVM driver, major device number 511.",
    "IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready",
    'audit: type=1400 audit(1731.221:88): apparmor="STATUS" operation="profile_load" profile="unconfined"',
    "process 'ptxas' started with executable stack",
)


def quiet_kernel(site: Site, script: Script, node: str, form: int) -> None:
    """Lines of a healthy kernel at the job's start."""
    for index, text in enumerate(KERNEL_CHATTER):
        script.say(
            site.start - 600 + 97 * index,
            f"kernel {node}",
            kernel(site, node, site.start - 600 + 97 * index, [text], form),
        )


# --- how it lies on disk ----------------------------------------------------------------------------------------------

LAYOUTS = ("ranks", "tree", "merged", "srun", "nodes", "pdsh")
SHARED = {"merged", "srun", "nodes", "pdsh"}  # files that several ranks write to


def _head(site: Site, layout: str, by: int | str) -> str:
    """Return the prefix of each line of a writer in a shared file."""
    if isinstance(by, str):
        kind, _, node = by.partition(" ")
        return f"{node}: " if layout == "pdsh" and kind == "agent" else ""
    if layout in SHARED and site.framework == "ray":
        return f"(RayTrainWorker pid={site.pids[by]}, ip={site.address(site.node(by))}) "
    heads = {
        "merged": f"[rank{by}]:",
        "srun": f"{by}: ",
        "nodes": f"[default{site.local(by)}]:",
        "pdsh": f"{site.node(by)}: ",
    }
    return heads.get(layout, "")


def _file(site: Site, layout: str, said: Said, run: str) -> str:
    """Return the file, below logs/, that a block goes to."""
    if isinstance(said.by, str):
        return _node_file(site, layout, *said.by.partition(" ")[::2])
    name = "stdout.log" if said.out else "stderr.log"
    places = {
        "nodes": f"{site.node(said.by)}.log",
        "tree": f"torchrun/{site.node(said.by)}/{run}/attempt_0/{site.local(said.by)}/{name}",
        "ranks": f"rank-{said.by}.log" if site.job % 2 else f"rank_{said.by}.log",
    }
    return places.get(layout) or _merged(site)


def _node_file(site: Site, layout: str, kind: str, node: str) -> str:
    if kind == "kernel":
        return (f"dmesg-{node}.log", f"{node}-dmesg.log", f"{node}/dmesg.log")[site.job % 3]
    if kind in {"health", "journal"}:
        return f"nvidia-smi-{node}.log" if kind == "health" else f"journal-{node}.log"
    if kind in {"pods", "lsf"}:
        return "kubectl-describe.log" if kind == "pods" else f"lsf-{site.job}.out"
    if layout in {"merged", "srun", "pdsh"}:
        return _merged(site)
    return f"{node}.log" if node else f"slurm-{site.job}.out"


def _merged(site: Site) -> str:
    return f"slurm-{site.job}.out" if site.job % 2 else "train.log"


def laid_out(site: Site, script: Script, layout: str, rng: Random) -> dict[str, str]:
    """The text of each file. In shared files blocks of the same moment are interleaved, and a rank may lag in its buffer."""
    run = f"{site.job}_{rng.randrange(16**8):08x}"
    lag = [rng.choice((0.0, 0.0, rng.uniform(0.0, 1.5))) for _ in range(site.world)]
    files: dict[str, list[tuple[float, int, str]]] = {}
    for order, said in enumerate(script.said):
        late = lag[said.by] if isinstance(said.by, int) and layout in SHARED else 0.0
        lines = files.setdefault(_file(site, layout, said, run), [])
        head = _head(site, layout, said.by)
        for index, line in enumerate(said.text.split("\n")):
            lines.append((said.at + late + 0.004 * index, order, head + line))
    return {name: "\n".join(line for *_, line in sorted(lines)) + "\n" for name, lines in files.items()}


def write_logs(folder: Path, files: Mapping[str, str]) -> None:
    """Write the files below `folder`/logs."""
    for name, text in files.items():
        path = folder / "logs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def write_job(folder: Path, site: Site, end: float, state: str = "FAILED") -> None:
    """Write job.yaml with the ranks of each node (JSON is YAML)."""
    job = {
        "id": str(site.job),
        "name": "lm-pretrain",
        "framework": site.framework,
        "world_size": site.world,
        "state": state,
        "start": f"{datetime.fromtimestamp(site.start, UTC):%Y-%m-%dT%H:%M:%SZ}",
        "end": f"{datetime.fromtimestamp(end, UTC):%Y-%m-%dT%H:%M:%SZ}",
        "nodes": {node: list(site.ranks(node)) for node in site.nodes},
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "job.yaml").write_text(json.dumps(job, indent=1) + "\n", "utf-8")
