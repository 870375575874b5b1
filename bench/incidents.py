"""Measures attribution: 60 synthetic incidents of 8 to 64 ranks with known truth, each with its cascade.

    python bench/incidents.py [--seed N] [--keep DIR] [--verbose] [--json] [--lab PYTHON]

The figures: the first diagnosis names a rank or node at fault as its first suspect (target: 85 %), and the fault
itself. All incidents are generated from the seed, with the wording of the real software (bench/made.py). With `--lab`,
an interpreter that has torch and numpy, 15 of them run live instead: two torchrun agents of four gloo processes each,
in which the fault is an act (a short file, a signal, a tensor of another size), so that every line is torch's own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from statistics import mean
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # `python bench/incidents.py`, from anywhere

from bench.made import (
    ABORT,
    BUS,
    FRAMEWORKS,
    KILL,
    SEGV,
    TERM,
    Frame,
    Release,
    Script,
    Site,
    Work,
    begin,
    deepspeed_end,
    dump_signal,
    elastic_end,
    kernel,
    laid_out,
    make_site,
    nccl_warn,
    quiet_kernel,
    remote_closed,
    remote_raised,
    reporter,
    srun_end,
    trace,
    watchdog,
    write_job,
    write_logs,
)

if TYPE_CHECKING:
    from kb.report import Report

ASKED = 0.85


@dataclass(frozen=True, slots=True)
class Truth:
    """The truth. `accept`: other classes that an expert would accept; without ranks and nodes: the whole job."""

    fault: str
    accept: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()

    @property
    def job(self) -> bool:
        """Whether all ranks fail alike."""
        return not self.ranks and not self.nodes


@dataclass(frozen=True, slots=True)
class Named:
    """An incident, its truth, and its diagnosis."""

    incident: str
    kind: str
    truth: Truth
    place: bool
    fault: bool
    answers: tuple[str, ...]
    suspect: str


@dataclass(slots=True)
class Play:
    """An incident under construction: `at` is when the fault strikes, `end` when the last line is written."""

    site: Site
    rng: Random
    script: Script
    at: float
    launcher: str
    end: float = 0.0
    kernels: set[str] = field(default_factory=set)

    def rank(self) -> int:
        """Return a random rank, seldom the one that prints the iteration lines."""
        return self.rng.randrange(self.site.world)

    def truth(self, fault: str, *ranks: int, accept: tuple[str, ...] = ()) -> Truth:
        """Return the truth: the fault, the ranks at fault and their nodes."""
        nodes = tuple(dict.fromkeys(self.site.node(rank) for rank in ranks))
        return Truth(fault, accept, ranks, nodes, tuple(self.site.address(node) for node in nodes))

    def raises(
        self, rank: int, frames: Sequence[Frame], last: str, at: float | None = None, *, start: bool = False
    ) -> None:
        """A rank dies of a Python exception; `start`: before the training loop and the process group."""
        when = self.at if at is None else at
        if start:
            frames = [("/workspace/lm/train.py", 318, "<module>", "main()"), *frames]
        self.script.say(when, rank, trace(self.site, rank, frames, last, loop=not start, joined=not start))

    def kernel(self, node: str, texts: Sequence[str], at: float | None = None) -> None:
        """Kernel lines of a node; its quiet ones and those of another node come with the first."""
        form = self.site.job % 3
        others = [item for item in self.site.nodes if item != node][:1]
        for item in {node: 0, **dict.fromkeys(others, 0)}:
            if item not in self.kernels:
                self.kernels.add(item)
                quiet_kernel(self.site, self.script, item, form)
        when = self.at if at is None else at
        self.script.say(when, f"kernel {node}", kernel(self.site, node, when, texts, form))

    def never_trained(self) -> None:
        """Remove the healthy start: the fault occurs before it."""
        site = self.site
        self.script.said, self.at = [], site.start + 38
        for rank in range(site.world):
            when = site.clock(site.node(rank), site.start + 20)
            text = f"{when:%Y-%m-%d %H:%M:%S},{rank:03d} INFO launch: rank {rank} of {site.world} on {site.node(rank)}, pid {site.pids[rank]}"
            self.script.say(site.start + 20, rank, text)

    def fall(
        self, dead: Mapping[int, int], how: str = "closed", *, gone: Collection[str] = (), wait: float = 0.0
    ) -> None:
        """The cascade: `dead` has the exit codes of the ranks at fault; `gone`: nodes without further output.

        `how`: "closed", peers lose a connection; "timeout", their watchdog ends them; "silent", only the launcher acts.
        """
        site, rng = self.site, self.rng
        codes = dict(dead)
        work = Work(rng.randrange(200, 90_000), timeout=rng.choice((600, 1800)), enqueued=rng.randrange(3))
        source = next(iter(dead), 0)
        begun = self.at + wait + (work.timeout if how == "timeout" else 0)
        for rank in range(site.world):
            if rank in dead or site.node(rank) in gone:
                continue
            when, chance = begun + rng.uniform(0.05, 1.8), rng.random()
            peer = (
                source if rng.random() < 0.3 else (rank - 1) % site.world
            )  # most see only their ring neighbor disappear
            codes[rank] = -TERM if how == "silent" or chance > 0.85 else -ABORT
            if codes[rank] == -TERM:
                continue
            if how == "timeout":
                self.script.say(when, rank, watchdog(site, rank, when, work))
            elif chance < 0.5:
                self.script.say(when, rank, remote_closed(site, rank, when, peer))
            else:
                codes[rank] = 1
                self.script.say(when, rank, remote_raised(site, rank, peer))
        self.end = begun + 9
        self.launchers(codes, dead, gone)

    def launchers(self, codes: Mapping[int, int], dead: Mapping[int, int], gone: Collection[str]) -> None:
        """Write the end as launchers report it; half of them report a victim first."""
        site, rng = self.site, self.rng
        failed = {rank: code for rank, code in codes.items() if code != -TERM}
        first = rng.random() < 0.5
        order = sorted(failed, key=lambda rank: ((rank in dead) != first, rng.random()))
        if self.launcher == "srun":
            self.script.say(
                self.end - 4, "scheduler", srun_end(site, self.end - 4, [(item, failed[item]) for item in order])
            )
            return
        if self.launcher == "ray":
            self.script.say(self.end - 3, "scheduler", ray_end(site, order[0]))
            return
        for node in site.nodes:
            here = [(rank, failed[rank]) for rank in order if site.node(rank) == node]
            when = self.end - rng.uniform(1, 5)
            if here and node not in gone:
                ends = (
                    deepspeed_end(site, node, when, *here[0])
                    if self.launcher == "deepspeed"
                    else elastic_end(site, node, when, here)
                )
                self.script.say(when, f"agent {node}", ends)


def ray_end(site: Site, rank: int) -> str:
    """Return what Ray's driver prints when a worker of a group raised."""
    node = site.node(rank)
    name = f"ray::_RayTrainWorker__execute.get_next() (pid={site.pids[rank]}, ip={site.address(node)}, repr=<ray.train._internal"
    return (
        "Training errored after 0 iterations at 2025-03-11 04:12:55. Total running time: 41min 9s\n"
        f"ray.exceptions.RayTaskError(DistBackendError): {name}.worker_group.RayTrainWorker object at 0x7f01c4b2d5d0>)\n"
        f'  File "{site.packages}/ray/train/_internal/worker_group.py", line 33, in __execute\n    raise skipped from exception_cause(skipped)'
    )


KINDS: dict[str, Callable[[Play], Truth]] = {}
NEEDS: dict[str, tuple[Release, Release]] = {}


def kind(function: Callable[[Play], Truth]) -> Callable[[Play], Truth]:
    """Register a kind of incident under the function's name."""
    KINDS[function.__name__] = function
    return function


MODEL: tuple[Frame, ...] = (
    ("{packages}/torch/nn/modules/module.py", 1518, "_wrapped_call_impl", "return self._call_impl(*args, **kwargs)"),
    ("/workspace/lm/model.py", 233, "forward", "h = h + self.mlp(self.norm2(h))"),
)
BACKWARD: tuple[Frame, ...] = (
    ("{packages}/torch/_tensor.py", 522, "backward", "torch.autograd.backward("),
    ("{packages}/torch/autograd/__init__.py", 266, "backward", "Variable._execution_engine.run_backward("),
)
LOADER: tuple[Frame, ...] = (
    ("{packages}/torch/utils/data/dataloader.py", 630, "__next__", "data = self._next_data()"),
    ("{packages}/torch/utils/data/dataloader.py", 1345, "_next_data", "return self._process_data(data)"),
    ("{packages}/torch/_utils.py", 694, "reraise", "raise exception"),
)


def in_worker(site: Site, frames: Sequence[Frame], error: str) -> str:
    """Return the last part of a traceback that came out of a DataLoader worker."""
    name = error.split(":", 1)[0].rsplit(".", 1)[-1]
    lines = [f"{name}: Caught {name} in DataLoader worker process 1.", "Original Traceback (most recent call last):"]
    for path, line, function, code in (
        ("{packages}/torch/utils/data/_utils/fetch.py", 51, "fetch", "data = [self.dataset[i]"),
        *frames,
    ):
        lines += [f'  File "{path.format(packages=site.packages)}", line {line}, in {function}', f"    {code}"]
    return "\n".join([*lines, error, ""])


def cuda_error(site: Site, what: str) -> str:
    """Return a CUDA error in the wording of the release."""
    name = "torch.AcceleratorError" if site.torch >= (2, 8) else "RuntimeError"
    hint = "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect."
    tail = "" if site.torch < (2, 0) else "\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
    return f"{name}: CUDA error: {what}\n{hint}\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1.{tail}"


def out_of_memory(site: Site, rank: int) -> str:
    """Return CUDA out of memory in the wording of the release."""
    gpu = site.local(rank)
    if site.torch < (2, 0):
        return (
            f"RuntimeError: CUDA out of memory. Tried to allocate 1.96 GiB (GPU {gpu}; 39.59 GiB total capacity; 34.02 GiB"
            " already allocated; 1.31 GiB free; 36.61 GiB reserved in total by PyTorch) If reserved memory is >> allocated"
            " memory try setting max_split_size_mb to avoid fragmentation.  See documentation for Memory Management and"
            " PYTORCH_CUDA_ALLOC_CONF"
        )
    name = "torch.OutOfMemoryError" if site.torch >= (2, 5) else "torch.cuda.OutOfMemoryError"
    return (
        f"{name}: CUDA out of memory. Tried to allocate 3.91 GiB. GPU {gpu} has a total capacity of 79.10 GiB of which 1.02"
        " GiB is free. Including non-PyTorch memory, this process has 78.07 GiB memory in use. Of the allocated memory 73.44"
        " GiB is allocated by PyTorch, and 2.18 GiB is reserved by PyTorch but unallocated. If reserved but unallocated"
        " memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
    )


# --- one rank ---------------------------------------------------------------------------------------------------------


@kind
def oom_one_rank(play: Play) -> Truth:
    """One rank gets a long batch and runs out of GPU memory."""
    rank = play.rank()
    play.raises(rank, BACKWARD if play.rng.random() < 0.5 else MODEL, out_of_memory(play.site, rank))
    play.fall({rank: 1})
    return play.truth("cuda_oom", rank)


@kind
def bad_sample(play: Play) -> Truth:
    """One rank's loader meets a broken file."""
    rank = play.rank()
    error, frames = play.rng.choice(
        (
            (
                "zlib.error: Error -3 while decompressing data: invalid distance too far back",
                (("/workspace/lm/data.py", 88, "_read", "raw = zlib.decompress(self.blob[a:b])"),),
            ),
            (
                (
                    "pyarrow.lib.ArrowInvalid: Parquet magic bytes not found in footer. Either the file is corrupted or this is not a"
                    " parquet file."
                ),
                (("/workspace/lm/data.py", 41, "_open", "self.table = pq.read_table(path)"),),
            ),
            (
                "PIL.UnidentifiedImageError: cannot identify image file '/data/laion/part-00411/000418822.jpg'",
                (("/workspace/lm/data.py", 64, "__getitem__", "image = Image.open(path).convert('RGB')"),),
            ),
            (
                "json.decoder.JSONDecodeError: Unterminated string starting at: line 1 column 1188 (char 1187)",
                (("/workspace/lm/data.py", 59, "__getitem__", "record = json.loads(line)"),),
            ),
        )
    )
    play.raises(rank, LOADER, in_worker(play.site, frames, error))
    play.fall({rank: 1})
    return play.truth("data_error", rank, accept=("dataloader_fault",))


@kind
def segfault_one_rank(play: Play) -> Truth:
    """One rank dies of SIGSEGV; with faulthandler it leaves its stack."""
    rank = play.rank()
    threads = "\n".join(
        f'  File "{play.site.packages}/torch/{path}", line {line} in {name}'
        for path, line, name in (("autograd/__init__.py", 266, "backward"), ("_tensor.py", 522, "backward"))
    )
    play.script.say(
        play.at,
        rank,
        f"Fatal Python error: Segmentation fault\n\nThread 0x00007f1e2c5fd700 (most recent call first):\n"
        f"  <no Python frame>\n\nCurrent thread 0x00007f2031c0a740 (most recent call first):\n{threads}\n"
        '  File "/workspace/lm/loop.py", line 141 in run',
    )
    play.fall({rank: -SEGV})
    return play.truth("segfault", rank)


@kind
def killed_by_kernel(play: Play) -> Truth:
    """The host runs out of memory; the kernel kills one rank."""
    rank = play.rank()
    node, pid = play.site.node(rank), play.site.pids[rank]
    play.kernel(
        node,
        [
            "python3 invoked oom-killer: gfp_mask=0x1100cca(GFP_HIGHUSER_MOVABLE), order=0, oom_score_adj=0",
            "Mem-Info:",
            (
                "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0-1,global_oom,task_memcg=/system.slice,"
                f"task=python3,pid={pid},uid=1001"
            ),
            (
                f"Out of memory: Killed process {pid} (python3) total-vm:411209384kB, anon-rss:201733120kB, file-rss:71264kB,"
                " shmem-rss:10520kB, UID:1001 pgtables:398120kB oom_score_adj:0"
            ),
            f"oom_reaper: reaped process {pid} (python3), now anon-rss:0kB, file-rss:71412kB, shmem-rss:10520kB",
        ],
    )
    play.fall({rank: -KILL})
    return play.truth("host_oom", rank)


@kind
def never_reaches(play: Play) -> Truth:
    """One rank stays in other code; all others wait in a collective until their watchdog ends them."""
    rank, site, rng = play.rank(), play.site, play.rng
    work = Work(rng.randrange(200, 90_000), timeout=600, enqueued=0, numel=1, out=1)
    last = play.at + work.timeout
    for item in range(site.world):
        if item != rank:
            when = last + rng.uniform(0.05, 1.8)
            play.script.say(when, item, watchdog(site, item, when, work))
    other = (rank + 1) % site.world
    if site.torch >= (2, 6):
        play.script.say(last + 1.1, rank, dump_signal(site, rank, last + 1.1, other, work.seq - 1))
    play.end = last + 12
    play.launchers({item: -ABORT if item != rank else -TERM for item in range(site.world)}, {}, ())
    return play.truth(
        "collective_desync", rank, accept=("collective_timeout", "deadlock", "straggler", "dataloader_fault")
    )


NEEDS["never_reaches"] = ((2, 6), (2, 9))


@kind
def other_size(play: Play) -> Truth:
    """One rank calls the collective with a tensor of another size, which torch's debug level reports."""
    rank, site = play.rank(), play.site
    seq, size, wrong = play.rng.randrange(300, 9000), 16_777_216, 12_582_912
    device = (
        "TensorDtypes=BFloat16, TensorDeviceTypes=TensorOptions(dtype=float (default), device=cuda, layout=Strided (default),"
        " requires_grad=false (default), pinned_memory=false (default), memory_format=(nullopt)))"
    )

    def running(n: int, shape: int) -> str:
        finger = f"CollectiveFingerPrint(SequenceNumber={seq}, OpType=ALLREDUCE, TensorShape=[{shape}], {device}"
        return f"Rank {n} is running collective: {finger}"

    frames = [
        (
            "{packages}/torch/distributed/distributed_c10d.py",
            2501,
            "all_reduce",
            "work = group.allreduce([tensor], opts)",
        )
    ]
    for item in range(site.world):
        odd = 0 if item == rank and rank != 0 else 1 if item == rank else rank
        mine, its = (wrong, size) if item == rank else (size, wrong)
        last = f"RuntimeError: Detected mismatch between collectives on ranks. {running(item, mine)}, but {running(odd, its)}."
        last += f"Collectives differ in the following aspects: \t Tensor Tensor shapes: {mine}vs {its}"
        play.raises(item, frames, last, play.at + play.rng.uniform(0, 0.9))
    play.end = play.at + 9
    play.launchers(dict.fromkeys(range(site.world), 1), {}, ())
    return play.truth("collective_desync", rank, accept=("shape_or_dtype",))


NEEDS["other_size"] = ((2, 3), (2, 9))


@kind
def nan_one_rank(play: Play) -> Truth:
    """Megatron finds NaN in the gradients of one rank before they are reduced."""
    rank, site = play.rank(), play.site
    where = f"Device: {site.local(rank)}, node: {site.node(rank)}"
    text = f"Rank {rank}: found NaN in local grad norm in backward pass before data-parallel communication collective. {where}"
    last = f"AssertionError: {text}"
    if site.torch >= (2, 6):
        text = (
            "found NaN in local grad norm for bucket #0 in backward pass before data-parallel communication collective"
        )
        last = f"RuntimeError: Rank {rank}, node {site.node(rank)}, device {site.local(rank)}, iteration -1: Unexpected result nan"
        last += f" (message='{text}')"
    frames = [
        (
            "/workspace/megatron/megatron/core/distributed/param_and_grad_buffer.py",
            159,
            "start_grad_sync",
            "self.check_grads(",
        ),
        (
            "/workspace/megatron/megatron/core/distributed/param_and_grad_buffer.py",
            121,
            "check_grads",
            "validate_result(",
        ),
    ]
    play.raises(rank, frames, last)
    play.fall({rank: 1})
    return play.truth("loss_not_finite", rank, accept=("silent_corruption",))


@kind
def checkpoint_one_rank(play: Play) -> Truth:
    """One rank's part of a checkpoint cannot be written whole."""
    rank = play.rank()
    frames = [
        ("{packages}/torch/serialization.py", 850, "save", "with _open_zipfile_writer(f) as opened_zipfile:"),
        ("{packages}/torch/serialization.py", 690, "__exit__", "self.file_like.write_end_of_file()"),
    ]
    path = f"/checkpoints/run7/global_step4000/zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"
    play.script.say(play.at - 6, rank, f"[rank {rank}] saving checkpoint to {path}")
    play.raises(
        rank,
        frames,
        "RuntimeError: [enforce fail at inline_container.cc:603] . unexpected pos 4294967360 vs 4294967254",
    )
    play.fall({rank: 1}, wait=play.rng.uniform(1, 20))
    return play.truth("checkpoint_save", rank, accept=("disk_full", "storage_io"))


@kind
def illegal_access(play: Play) -> Truth:
    """A kernel of one rank touches memory that is not its own."""
    rank = play.rank()
    play.raises(rank, BACKWARD, cuda_error(play.site, "an illegal memory access was encountered"))
    play.fall({rank: 1}, "timeout" if play.rng.random() < 0.5 else "closed")
    return play.truth("cuda_memory_access", rank)


@kind
def token_out_of_range(play: Play) -> Truth:
    """One rank's batch has a token id beyond the vocabulary."""
    rank = play.rank()
    asserts = "\n".join(
        f"/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1255: indexSelectSmallIndex: block: [{block},0,0], thread: [{thread},0,0]"
        " Assertion `srcIndex < srcSelectDimSize` failed."
        for block in (3, 4)
        for thread in range(64, 72)
    )
    play.script.say(play.at - 0.4, rank, asserts)
    play.raises(rank, MODEL, cuda_error(play.site, "device-side assert triggered"))
    play.fall({rank: 1})
    return play.truth("device_assert", rank, accept=("data_error",))


@kind
def bug_one_rank(play: Play) -> Truth:
    """The program's own code fails in work that only one rank does."""
    rank = play.rank()
    frames, last = play.rng.choice(
        (
            (
                [("/workspace/lm/metrics.py", 57, "log_expert_load", "share = self.loads[layer] / total")],
                "KeyError: 'layers.31.moe'",
            ),
            (
                [("/workspace/lm/sched.py", 102, "next_stage", "return self.stages[self.current + 1]")],
                "IndexError: list index out of range",
            ),
            (
                [("/workspace/lm/hooks.py", 33, "after_step", "self.writer.add_scalar(tag, value.item(), step)")],
                "AttributeError: 'NoneType' object has no attribute 'item'",
            ),
        )
    )
    play.raises(rank, frames, last)
    play.fall({rank: 1})
    return play.truth("code_bug", rank)


@kind
def shared_memory(play: Play) -> Truth:
    """The loader workers of one node fill /dev/shm."""
    rank = play.rank()
    text = (
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\n"
        + trace(
            play.site,
            rank,
            [
                (
                    "{packages}/torch/utils/data/dataloader.py",
                    1132,
                    "_try_get_data",
                    "data = self._data_queue.get(timeout=timeout)",
                ),
            ],
            f"RuntimeError: DataLoader worker (pid {play.site.pids[rank] + 311}) is killed by signal: Bus error. It is possible"
            " that dataloader's workers are out of shared memory. Please try to raise your shared memory limit.",
        )
    )
    play.script.say(play.at, rank, text)
    play.fall({rank: 1})
    return play.truth("shm_exhausted", rank)


# --- a GPU or node ----------------------------------------------------------------------------------------------------


def _xid(play: Play, rank: int, number: int, text: str) -> str:
    pid = play.site.pids[rank]
    who = "pid='<unknown>', name=<unknown>" if number in {79, 74, 63} else f"pid={pid}, name=python3"
    return f"NVRM: Xid (PCI:0000:{play.site.bus(rank)}:00): {number}, {who}, {text}"


@kind
def ecc(play: Play) -> Truth:
    """A GPU has an uncorrectable memory error, reported by the kernel log alone or also by its rank."""
    rank = play.rank()
    play.kernel(
        play.site.node(rank),
        [
            _xid(play, rank, 48, "DBE (double bit error) ECC Error detected at (FBPA 3, subpartition 1)"),
            _xid(play, rank, 63, "Row Remapper: New row marked for remapping, reset gpu to activate."),
            _xid(play, rank, 45, "Ch 00000008"),
        ],
    )
    if play.rng.random() < 0.5:
        play.raises(rank, MODEL, cuda_error(play.site, "uncorrectable ECC error encountered"), play.at + 0.3)
        play.fall({rank: 1}, wait=0.4)
    else:
        play.fall({rank: -ABORT}, wait=0.4)
    return play.truth("gpu_memory_ecc", rank)


@kind
def off_the_bus(play: Play) -> Truth:
    """A GPU falls off the bus."""
    rank = play.rank()
    bus = f"0000:{play.site.bus(rank)}:00.0"
    play.kernel(
        play.site.node(rank),
        [
            f"pcieport 0000:{play.site.bus(rank)[0]}0:01.0: pciehp: Slot(3): Link Down",
            _xid(play, rank, 79, "GPU has fallen off the bus."),
            f"NVRM: GPU {bus}: GPU has fallen off the bus.",
            f"NVRM: GPU {bus}: GPU serial number is 16516230{rank:05d}.",
        ],
    )
    if play.rng.random() < 0.6:
        play.raises(rank, BACKWARD, cuda_error(play.site, "unspecified launch failure"), play.at + 1.2)
        play.fall({rank: 1}, "timeout")
    else:
        play.fall({rank: -ABORT}, "timeout")
    return play.truth("gpu_fell_off_bus", rank)


@kind
def firmware(play: Play) -> Truth:
    """The GPU's system processor stops answering."""
    rank = play.rank()
    call = "Timeout after 6s of waiting for RPC response from GPU{n} GSP! Expected function 76 (GSP_RM_CONTROL) (0x20801702 0x4)."
    play.kernel(play.site.node(rank), [_xid(play, rank, 119, call.format(n=play.site.local(rank))) for _ in range(3)])
    play.fall({rank: -ABORT}, "timeout")
    return play.truth("gpu_firmware", rank)


@kind
def nvlink(play: Play) -> Truth:
    """A link between the GPUs of one node fails."""
    rank = play.rank()
    regs = "0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0"
    node = play.site.node(rank)
    play.kernel(
        node,
        [
            f"nvidia-nvswitch2: SXid (PCI:0000:86:00.0): 20034, Fatal, Link {rank % 18:02d} LTSSM Fault Up",
            _xid(play, rank, 74, f"NVLink: fatal error detected on link {rank % 18}({regs})"),
        ],
    )
    play.raises(rank, BACKWARD, cuda_error(play.site, "unspecified launch failure"), play.at + 0.8)
    play.fall({rank: 1}, wait=1)
    return play.truth("nvlink_fault", *play.site.ranks(node))


def _port_down(play: Play, node: str) -> int:
    """The port of one node goes down: its kernel, its ranks' NCCL and its peers report it; returns one of its ranks."""
    site, rng = play.site, play.rng
    nic = rng.randrange(8)
    play.kernel(
        node,
        [
            (
                f"mlx5_core 0000:{0x0C + nic:02x}:00.0: mlx5_pcie_event:299:(pid 211): PCIe slot advertised sufficient power"
                " (27W)."
            ),
            f"mlx5_core 0000:{0x0C + nic:02x}:00.0 ib{nic}: Link down",
        ],
        play.at,
    )
    own = site.ranks(node)[nic % site.per_node]
    event = (
        "Got async event : port error"
        if site.torch < (2, 3)
        else f"mlx5_{nic}:1 Got non-fatal async event: port error(10)"
    )
    play.script.say(
        play.at + 0.1, own, nccl_warn(site, own, "transport/net_ib.cc:93", f"NET/IB : {event}", play.at + 0.1)
    )
    for node_b in site.nodes:
        peer = site.ranks(node_b)[nic % site.per_node]
        if node_b != node:
            when = play.at + rng.uniform(29, 31)
            play.script.say(
                when, peer, nccl_warn(site, peer, "transport/net_ib.cc:1295", _completion(play, peer, node, nic), when)
            )
    return own


def _completion(play: Play, rank: int, node: str, nic: int) -> str:
    """Return a work completion error against a node, in the wording of the NCCL release."""
    site = play.site
    peer = f"{site.address(node)}<{40_000 + 7 * rank}>"
    if site.torch < (2, 1):
        return f"NET/IB : Got completion from peer {peer} with error 12, opcode 0, len 0, vendor err 129"
    gids = f"localGid ::ffff:{site.address(site.node(rank))} remoteGids::ffff:{site.address(node)}"
    if site.torch < (2, 6):
        return f"NET/IB : Got completion from peer {peer} with status=12 opcode=0 len=0 vendor err 129 (Recv) {gids}"
    return (
        f"NET/IB: Got completion from peer {peer} with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) reqSize=0"
        f" vendor_err=129 req_type=Recv {gids} hca mlx5_{nic}"
    )


@kind
def port_down(play: Play) -> Truth:
    """A network port of one node goes down."""
    node = play.rng.choice(play.site.nodes)
    own = _port_down(play, node)
    play.fall({own: -ABORT}, wait=31)
    return play.truth("rdma_link", *play.site.ranks(node))


@kind
def two_ports_down(play: Play) -> Truth:
    """Ports of two nodes go down at about the same time."""
    first, second = play.rng.sample(play.site.nodes, 2)
    owns = [_port_down(play, node) for node in (first, second)]
    play.fall(dict.fromkeys(owns, -ABORT), wait=31)
    return play.truth("rdma_link", *play.site.ranks(first), *play.site.ranks(second), accept=("fabric_fault",))


@kind
def disk_full(play: Play) -> Truth:
    """The scratch disk of one node is full."""
    node = play.rng.choice(play.site.nodes)
    rank = play.rng.choice(play.site.ranks(node))
    frames = [("/workspace/lm/cache.py", 77, "_spill", "np.save(handle, tokens)")]
    name = "token_cache_00117.npy"
    play.raises(rank, frames, f"OSError: [Errno 28] No space left on device: '/scratch/{name}'")
    play.fall({rank: 1})
    return play.truth("disk_full", *play.site.ranks(node))


def _all_of_node(
    play: Play, node: str, frames: Sequence[Frame], last: Callable[[int], str], code: int = 1
) -> dict[int, int]:
    """Every rank of one node dies at start; returns their exit codes."""
    for rank in play.site.ranks(node):
        play.raises(rank, frames, last(rank), play.at + play.rng.uniform(0, 0.8), start=True)
    return dict.fromkeys(play.site.ranks(node), code)


def _store_lost(play: Play, dead: Mapping[int, int]) -> None:
    """The others wait for a node that never joins, until the store's timeout."""
    site = play.site
    codes = dict(dead)
    for rank in range(site.world):
        if rank not in dead:
            joined = site.world - len(dead)
            frames = [
                ("/workspace/lm/train.py", 292, "main", 'dist.init_process_group("nccl")'),
                (
                    "{packages}/torch/distributed/rendezvous.py",
                    278,
                    "_env_rendezvous_handler",
                    "store = _create_c10d_store(",
                ),
            ]
            last = (
                f"torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. {joined}/{site.world}"
                " clients joined."
                if site.torch >= (2, 1)
                else f"RuntimeError: Timed out initializing process group in store based barrier on rank: {rank}, for key:"
                f" store_based_barrier_key:1 (world_size={site.world}, worker_count={joined}, timeout=0:30:00)"
            )
            play.raises(rank, frames, last, play.at + 601 + play.rng.uniform(0, 1.5), start=True)
            codes[rank] = 1
    play.end = play.at + 610
    play.launchers(codes, dead, ())


@kind
def permission(play: Play) -> Truth:
    """One node mounts the data without read permission for the job."""
    play.never_trained()
    node = play.rng.choice(play.site.nodes)
    frames = [("/workspace/lm/data.py", 31, "__init__", "self.index = open(path, 'rb')")]
    dead = _all_of_node(
        play, node, frames, lambda _: "PermissionError: [Errno 13] Permission denied: '/mnt/corpus/v4/index.bin'"
    )
    _store_lost(play, dead)
    return play.truth("access_denied", *dead)


@kind
def old_driver(play: Play) -> Truth:
    """One node has a driver that is too old."""
    play.never_trained()
    node = play.rng.choice(play.site.nodes)
    frames = [
        ("/workspace/lm/train.py", 281, "main", "torch.cuda.set_device(local_rank)"),
        ("{packages}/torch/cuda/__init__.py", 298, "_lazy_init", "torch._C._cuda_init()"),
    ]
    text = (
        "RuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver by"
        " downloading and installing a new version from the URL: http://www.nvidia.com/Download/index.aspx Alternatively, go"
        " to: https://pytorch.org to install a PyTorch version that has been compiled with your version of the CUDA driver."
    )
    dead = _all_of_node(play, node, frames, lambda _: text)
    _store_lost(play, dead)
    return play.truth("driver_mismatch", *dead, accept=("cuda_init",))


@kind
def gpu_missing(play: Play) -> Truth:
    """One node lacks a GPU: its last rank finds no device."""
    play.never_trained()
    node = play.rng.choice(play.site.nodes)
    rank = play.site.ranks(node)[-1]
    frames = [
        ("/workspace/lm/train.py", 281, "main", "torch.cuda.set_device(local_rank)"),
        ("{packages}/torch/cuda/__init__.py", 408, "set_device", "torch._C._cuda_setDevice(device)"),
    ]
    play.raises(rank, frames, cuda_error(play.site, "invalid device ordinal"), start=True)
    _store_lost(play, {rank: 1})
    return play.truth("cuda_init", rank, accept=("gpu_fell_off_bus", "config_error"))


@kind
def broken_package(play: Play) -> Truth:
    """One node's environment lacks a library, or has another build of it."""
    play.never_trained()
    node = play.rng.choice(play.site.nodes)
    last = play.rng.choice(
        (
            (
                "ImportError: /opt/conda/lib/python3.10/site-packages/flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so: undefined symbol:"
                " _ZN3c104cuda9SetDeviceEi"
            ),
            "ModuleNotFoundError: No module named 'transformer_engine'",
            "ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory",
        )
    )
    dead = _all_of_node(
        play, node, [("/workspace/lm/model.py", 14, "<module>", "from lm.attention import flash")], lambda _: last
    )
    _store_lost(play, dead)
    return play.truth("dependency", *dead)


@kind
def stale_handle(play: Play) -> Truth:
    """One node's mount of the shared file system goes stale."""
    node = play.rng.choice(play.site.nodes)
    dead = {}
    for rank in play.site.ranks(node):
        frames = [("/workspace/lm/data.py", 92, "__getitem__", "self.shard.readinto(buffer)")]
        play.raises(
            rank,
            LOADER,
            in_worker(play.site, frames, "OSError: [Errno 116] Stale file handle"),
            play.at + play.rng.uniform(0, 0.9),
        )
        dead[rank] = 1
    play.fall(dead)
    return play.truth("storage_io", *dead, accept=("dataloader_fault",))


@kind
def loader_stalls(play: Play) -> Truth:
    """The loaders of one node hang: its storage does not respond."""
    node = play.rng.choice(play.site.nodes)
    dead = {}
    if play.rng.random() < 0.5:
        play.kernel(
            node, [f"nfs: server {play.site.address(play.site.nodes[0])[:-2]}99 not responding, still trying"] * 2
        )
    for rank in play.site.ranks(node):
        frames = [("{packages}/torch/utils/data/dataloader.py", 1282, "_get_data", "raise RuntimeError(")]
        play.raises(
            rank,
            frames,
            "RuntimeError: DataLoader timed out after 300 seconds",
            play.at + 300 + play.rng.uniform(0, 0.9),
        )
        dead[rank] = 1
    play.fall(dead, wait=301)
    return play.truth("dataloader_fault", *dead, accept=("storage_io",))


@kind
def wrong_gid(play: Play) -> Truth:
    """One node's adapter has no address at the GID index configured for NCCL."""
    play.never_trained()
    site, node = play.site, play.rng.choice(play.site.nodes)
    old = site.torch < (2, 6)
    for rank in site.ranks(node):
        where = (
            "Call to ibv_modify_qp failed with error Invalid argument errno 22"
            if old
            else f"Call to ibv_modify_qp failed with 22 Invalid argument, on dev mlx5_{site.local(rank)}:1, curr state INIT, next"
            f" state RTR, local GID index 3, local GID ::, remote GID ::ffff:{site.address(site.nodes[0])}"
        )
        play.script.say(
            play.at,
            rank,
            nccl_warn(site, rank, "misc/ibvwrap.cc:187" if old else "misc/ibvwrap.cc:262", where, play.at),
        )
        frames = [
            (
                "{packages}/torch/distributed/distributed_c10d.py",
                3685,
                "barrier",
                "work = default_pg.barrier(opts=opts)",
            )
        ]
        last = (
            "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:219, unhandled system"
            f" error (run with NCCL_DEBUG=INFO for details), NCCL version {site.nccl}\nncclSystemError: System call (e.g. socket,"
            f" malloc) or external library call failed or device error. \nLast error:\n{where}"
        )
        play.raises(rank, frames, last, play.at + play.rng.uniform(0.2, 0.9))
    play.fall(dict.fromkeys(site.ranks(node), 1), wait=1)
    return play.truth("rdma_setup", *site.ranks(node), accept=("nccl_bootstrap",))


NEEDS["wrong_gid"] = ((2, 1), (2, 9))


@kind
def no_interface(play: Play) -> Truth:
    """One node lacks the interface configured for NCCL."""
    play.never_trained()
    site, node = play.site, play.rng.choice(play.site.nodes)
    for rank in site.ranks(node):
        text = "Bootstrap : no socket interface found"
        play.script.say(play.at, rank, nccl_warn(site, rank, "bootstrap.cc:45", text, play.at))
        frames = [
            (
                "{packages}/torch/distributed/distributed_c10d.py",
                3685,
                "barrier",
                "work = default_pg.barrier(opts=opts)",
            )
        ]
        last = (
            "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:219, internal error -"
            f" please report this issue to the NCCL developers, NCCL version {site.nccl}\nncclInternalError: Internal check failed."
            f"\nLast error:\n{text}"
        )
        play.raises(rank, frames, last, play.at + play.rng.uniform(0.2, 0.9))
    play.fall(dict.fromkeys(site.ranks(node), 1), "silent")
    return play.truth("nccl_bootstrap", *site.ranks(node), accept=("config_error",))


NEEDS["no_interface"] = ((2, 1), (2, 9))


@kind
def hot_node(play: Play) -> Truth:
    """One node's GPUs throttle; steps take three times as long until a person stops the run."""
    site, rng = play.site, play.rng
    node = rng.choice(site.nodes)
    when = play.at
    play.kernel(
        node,
        [
            f"CPU{n}: Package temperature above threshold, cpu clock throttled (total events = {40 + n})"
            for n in (0, 48)
        ],
    )
    stamp = f"{site.clock(node, when):%a %b %d %H:%M:%S %Y}"
    gpus = [
        (
            f"GPU 00000000:{site.bus(local).upper()}:00.0\n    Clocks Event Reasons\n        Active                            : 0x0000000000000048\n"
            "        SW Power Cap                      : Not Active\n        HW Slowdown                       : Active\n"
            "            HW Thermal Slowdown           : Active\n            HW Power Brake Slowdown       : Not Active\n"
            f"    Temperature\n        GPU Current Temp                  : {88 + local % 3} C\n        GPU Slowdown Temp                 : 89 C"
        )
        for local in range(site.per_node)
    ]
    play.script.say(
        when, f"health {node}", "\n".join([f"==============NVSMI LOG==============\n\nTimestamp : {stamp}", *gpus])
    )
    step = rng.randrange(9000, 9999)
    took = rng.uniform(9, 14)
    for number in range(24):
        when += took * rng.uniform(0.95, 1.05)
        play.script.say(
            when, reporter(site), FRAMEWORKS[site.framework](site, step + number, when, 2.1, took), out=True
        )
    play.script.say(
        when + 1,
        "scheduler",
        f"slurmstepd: error: *** STEP {site.job}.0 ON {site.nodes[0]} CANCELLED AT"
        f" {site.clock(site.nodes[0], when + 1):%Y-%m-%dT%H:%M:%S} ***",
    )
    play.end = when + 3
    return play.truth("gpu_thermal_power", *site.ranks(node), accept=("straggler", "throughput_drop"))


@kind
def spot_reclaimed(play: Play) -> Truth:
    """The provider takes one node back."""
    site, rng = play.site, play.rng
    node = rng.choice(site.nodes)
    stamp = f"{site.clock(node, play.at - 110):%b %d %H:%M:%S} {node}"
    gone = f"{site.clock(node, play.at):%b %d %H:%M:%S} {node}"
    play.script.say(
        play.at - 110,
        f"journal {node}",
        "\n".join(
            (
                f"{stamp} aws-node-termination-handler[1811]: INF Got interruption event from channel kind=SPOT_ITN node-name={node}",
                (
                    f"{stamp} aws-node-termination-handler[1811]: INF Spot ITN received. Instance i-0a41c97f2b6d5e{site.job % 997:03d} will be interrupted at"
                    f" {site.clock(node, play.at + 10):%Y-%m-%dT%H:%M:%SZ}"
                ),
                f"{gone} systemd[1]: Stopping User Manager for UID 1001...",
                f"{gone} systemd-logind[944]: System is powering down.",
            )
        ),
    )
    play.fall(dict.fromkeys(site.ranks(node), -TERM), "closed", gone={node})
    return play.truth("preempted", *site.ranks(node), accept=("node_lost",))


@kind
def node_fails(play: Play) -> Truth:
    """Slurm loses a node; the others' connections break, then the job is cancelled."""
    site = play.site
    node = play.rng.choice(site.nodes[1:])
    own = [rank for rank in range(site.world) if site.node(rank) == node]
    play.script.said = [item for item in play.script.said if item.by not in own or item.at < play.at]
    play.fall(dict.fromkeys(own, -KILL), "timeout" if play.rng.random() < 0.5 else "closed", gone={node})
    when = f"{site.clock(site.nodes[0], play.end):%Y-%m-%dT%H:%M:%S}"
    play.script.say(
        play.end,
        "scheduler",
        "\n".join(
            (
                f"srun: error: Node failure on {node}",
                f"slurmstepd: error: *** JOB {site.job} ON {site.nodes[0]} CANCELLED AT {when} DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
                f"srun: error: {node}: tasks {own[0]}-{own[-1]}: Killed",
            )
        ),
    )
    return play.truth("node_lost", *own, accept=("host_hardware",))


@kind
def machine_check(play: Play) -> Truth:
    """A DIMM of one node fails; the node's rank dies of SIGBUS."""
    rank = play.rank()
    play.kernel(
        play.site.node(rank),
        [
            "mce: [Hardware Error]: Machine check events logged",
            "EDAC MC1: 1 UE memory read error on CPU_SrcID#1_MC#1_Chan#0_DIMM#1 (channel:0 slot:1 page:0x5a1c3d2 offset:0x0 grain:32)",
            f"Memory failure: 0x5a1c3d2: Sending SIGBUS to python3:{play.site.pids[rank]} due to hardware memory corruption",
            "Memory failure: 0x5a1c3d2: recovery action for dirty LRU page: Recovered",
        ],
    )
    play.fall({rank: -BUS}, wait=0.2)
    return play.truth("host_hardware", rank)


@kind
def ray_worker_oom(play: Play) -> Truth:
    """Ray's memory monitor kills a worker on one node."""
    rank, site = play.rank(), play.site
    node = site.node(rank)
    play.script.say(
        play.at,
        "scheduler",
        (
            f"(raylet, ip={site.address(node)}) [{site.clock(node, play.at):%Y-%m-%d %H:%M:%S},114 E 341 341] (raylet) node_manager.cc:3069:"
            f" 1 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due to other reasons at node (ID:"
            f" 7f2d61a0c4e95b38d6a1, IP: {site.address(node)}) over the last time period. To see more information about the Workers"
            f" killed on this node, use `ray logs raylet.out -ip {site.address(node)}`\n"
            "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\n"
            f"Memory on the node (IP: {site.address(node)}, ID: 7f2d61a0c4e95b38d6a1) where the task (actor ID: 02c1b6e1a4f1,"
            f" name=RayTrainWorker.__init__, pid={site.pids[rank]}, memory used=412.31GB) was running was 963.11GB / 1007.52GB"
            " (0.955919), which exceeds the memory usage threshold of 0.95."
        ),
    )
    play.fall({rank: -KILL}, wait=0.3)
    return play.truth("host_oom", rank)


@kind
def port_taken(play: Play) -> Truth:
    """The port of the store is in use on the first node; all others time out."""
    play.never_trained()
    site = play.site
    port = 29_500
    frames = [
        ("/workspace/lm/train.py", 292, "main", 'dist.init_process_group("nccl")'),
        ("{packages}/torch/distributed/rendezvous.py", 189, "_create_c10d_store", "return TCPStore("),
    ]
    old = "RuntimeError: The server socket has failed to listen on any local network address. The server socket has failed to bind to"
    last = f"{old} [::]:{port} (errno: 98 - Address already in use). The server socket has failed to bind to 0.0.0.0:{port} (errno: 98 -"
    last += " Address already in use)."
    if site.torch >= (2, 3):
        last = "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port:"
        last += f" {port}, useIpv6: 0, code: -98, name: EADDRINUSE, message: address already in use"
    play.raises(0, frames, last, start=True)
    codes = {0: 1}
    for rank in range(1, site.world):
        away = (
            f"torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to connect to"
            f" ({site.address(site.nodes[0])}, {port})."
            if site.torch >= (2, 1)
            else "RuntimeError: The client socket has timed out after"
            f" 600s while trying to connect to ({site.address(site.nodes[0])}, {port})."
        )
        play.raises(rank, frames, away, play.at + 600 + play.rng.uniform(0, 1.5), start=True)
        codes[rank] = 1
    play.end = play.at + 608
    play.launchers(codes, {0: 1}, ())
    return play.truth("port_in_use", 0, accept=("rendezvous",))


# --- all alike --------------------------------------------------------------------------------------------------------


def _all(
    play: Play, frames: Sequence[Frame], last: Callable[[int], str], *, start: bool = False, code: int = 1
) -> None:
    """Every rank dies of the same within a second."""
    for rank in range(play.site.world):
        play.raises(rank, frames, last(rank), play.at + play.rng.uniform(0, 0.9), start=start)
    play.end = play.at + 8
    play.launchers(dict.fromkeys(range(play.site.world), code), {}, ())


@kind
def unknown_argument(play: Play) -> Truth:
    """The program does not know an argument."""
    play.script.said, play.at = [], play.site.start + 9
    for rank in range(play.site.world):
        play.script.say(
            play.at + play.rng.uniform(0, 0.9),
            rank,
            "usage: train.py [-h] --config CONFIG [--steps STEPS] [--resume PATH]\n"
            "train.py: error: unrecognized arguments: --use-flash-attn-v3",
        )
    play.end = play.at + 6
    play.launchers(dict.fromkeys(range(play.site.world), 2), {}, ())
    return Truth("config_error")


@kind
def all_out_of_memory(play: Play) -> Truth:
    """The batch is too large for every GPU."""
    play.script.said = [item for item in play.script.said if not item.out]
    play.at = play.site.start + 66
    _all(play, BACKWARD, lambda rank: out_of_memory(play.site, rank))
    return Truth("cuda_oom")


@kind
def wrong_shapes(play: Play) -> Truth:
    """The checkpoint's shapes are not the model's."""
    play.never_trained()
    text = (
        "RuntimeError: Error(s) in loading state_dict for LanguageModel:\n\tsize mismatch for embed.weight: copying a param with shape"
        " torch.Size([50304, 4096]) from checkpoint, the shape in current model is torch.Size([65024, 4096])."
    )
    frames = [("/workspace/lm/ckpt.py", 119, "resume", 'model.load_state_dict(state["model"])')]
    _all(play, frames, lambda _: text, start=True)
    return Truth("checkpoint_load", ("shape_or_dtype", "config_error"))


@kind
def no_checkpoint(play: Play) -> Truth:
    """The checkpoint to resume from is not there."""
    play.never_trained()
    frames = [("/workspace/lm/ckpt.py", 104, "resume", "state = torch.load(path, map_location='cpu')")]
    path = "/checkpoints/run7/step_40000/model.pt"
    _all(play, frames, lambda _: f"FileNotFoundError: [Errno 2] No such file or directory: '{path}'", start=True)
    return Truth("checkpoint_load", ("config_error",))


@kind
def matrix_shapes(play: Play) -> Truth:
    """Every rank multiplies matrices that do not fit."""
    play.script.said = [item for item in play.script.said if not item.out]
    play.at = play.site.start + 66
    _all(play, MODEL, lambda _: "RuntimeError: mat1 and mat2 shapes cannot be multiplied (8192x4096 and 5120x13824)")
    return Truth("shape_or_dtype", ("config_error", "code_bug"))


@kind
def time_is_up(play: Play) -> Truth:
    """The job reaches its time limit."""
    site = play.site
    when = f"{site.clock(site.nodes[0], play.at):%Y-%m-%dT%H:%M:%S}"
    play.script.say(
        play.at,
        "scheduler",
        f"slurmstepd: error: *** STEP {site.job}.0 ON {site.nodes[0]} CANCELLED AT {when} DUE TO TIME LIMIT ***\n"
        f"slurmstepd: error: *** JOB {site.job} ON {site.nodes[0]} CANCELLED AT {when} DUE TO TIME LIMIT ***\n"
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
    )
    ends = [f"srun: error: {site.node(rank)}: task {rank}: Terminated" for rank in range(site.world)]
    play.script.say(play.at + 3, "scheduler", "\n".join(ends))
    play.end = play.at + 4
    return Truth("time_limit")


# --- the sixty --------------------------------------------------------------------------------------------------------

# nodes, ranks a node, framework, launcher, layout; two for most kinds
TWICE = (
    "oom_one_rank", "bad_sample", "segfault_one_rank", "killed_by_kernel", "never_reaches", "other_size", "nan_one_rank",
    "checkpoint_one_rank", "ecc", "nvlink", "port_down", "two_ports_down", "permission",
    "gpu_missing", "broken_package", "loader_stalls", "wrong_gid", "hot_node", "spot_reclaimed", "node_fails", "all_out_of_memory",
)  # fmt: skip
ONLY = {"nan_one_rank": "megatron", "ray_worker_oom": "ray"}
COUNT = 60


def plan() -> list[str]:
    """Return the kinds of the sixty incidents, in order."""
    return [name for name in KINDS for _ in range(2 if name in TWICE else 1)]


def make(name: str, number: int, seed: int, folder: Path) -> Truth:
    """Write incident `number` of kind `name` into `folder`; returns its truth."""
    rng = Random(f"{seed}/{number}/{name}")
    framework = ONLY.get(name) or rng.choice(
        ("megatron", "deepspeed", "hf", "lightning", "torchtitan", "nemo", "pytorch-ddp")
    )
    nodes, per_node = rng.choice(((2, 4), (2, 8), (4, 4), (4, 8), (8, 2), (8, 8), (1, 8)))
    if name not in {"oom_one_rank", "bad_sample", "segfault_one_rank", "nan_one_rank"}:
        nodes = max(2, nodes)  # the question is which of several nodes
    if name == "two_ports_down":
        nodes, per_node = 8, rng.choice((2, 4))
    launcher, layout = _way(name, framework, rng)
    low, high = NEEDS.get(name, ((1, 0), (9, 0)))
    release = None
    while release is None or not low <= release <= high:
        release = make_site(rng, 1, 1, framework).torch
    site = make_site(rng, nodes, per_node, framework, release)
    script, at = begin(site, rng, rng.randrange(12, 40))
    play = Play(site, rng, script, at, launcher)
    truth = KINDS[name](play)
    write_logs(folder, laid_out(site, play.script, layout, rng))
    if number % 2:
        write_job(folder, site, play.end)
    return truth


def _way(name: str, framework: str, rng: Random) -> tuple[str, str]:
    """Launcher and layout that go together."""
    if framework == "ray":
        return "ray", "merged"
    if framework == "deepspeed":
        return "deepspeed", rng.choice(("ranks", "pdsh"))
    if name in {"node_fails", "time_is_up"} or rng.random() < 0.25:
        return "srun", rng.choice(("srun", "ranks"))
    return "torchrun", rng.choice(("ranks", "tree", "merged", "nodes"))


# --- played live ------------------------------------------------------------------------------------------------------

NODES, PER_NODE = ("node-a", "node-b"), 4
ODD = 5  # the rank at fault, if it is one: the second of node-b
STEPS, STRIKES = 14, 9
WAIT = 6  # timeout of a collective, in seconds
PATIENCE = 45.0  # seconds until an incident is stopped
AT_ONCE = 2  # on two cores


def _live(fault: str, *accept: str, ranks: tuple[int, ...] = (ODD,)) -> Truth:
    return Truth(fault, accept, ranks, (NODES[1],))


LIVE: dict[str, Truth] = {
    "short_file": _live("data_error", "storage_io"),
    "killed": _live("killed", "peer_failure"),
    "segfault": _live("segfault"),
    "full_disk": _live("disk_full"),
    "no_permission": _live("access_denied", ranks=(4, 5, 6, 7)),
    "no_module": _live("dependency", ranks=(4, 5, 6, 7)),
    "other_size": _live("collective_desync", "shape_or_dtype"),
    "other_op": _live("collective_desync"),
    "absent": _live("collective_desync", "collective_timeout", "deadlock", "straggler"),
    "key_error": _live("code_bug"),
    "loader_killed": _live("dataloader_fault", "killed", "host_oom"),
    "open_files": _live("resource_limit"),
    "nan": _live("loss_not_finite"),
    "all_shapes": Truth("shape_or_dtype", ("config_error", "code_bug")),
    "all_no_checkpoint": Truth("checkpoint_load", ("config_error",)),
}
# each of these has one live incident instead of one of its two synthetic ones
GIVES = ("bad_sample", "killed_by_kernel", "segfault_one_rank", "checkpoint_one_rank", "permission", "broken_package", "other_size",
         "never_reaches", "oom_one_rank", "loader_stalls", "ecc", "nan_one_rank", "gpu_missing", "all_out_of_memory", "wrong_gid")  # fmt: skip


def strike(act: str, rank: int, folder: Path) -> None:
    """Cause the fault before the step; everything after it comes from Python, torch and the kernel."""
    import ctypes  # noqa: PLC0415 - only in a played rank
    import faulthandler  # noqa: PLC0415
    import os  # noqa: PLC0415
    import time  # noqa: PLC0415

    import numpy as np  # noqa: PLC0415
    import torch  # noqa: PLC0415

    acts: dict[str, Callable[[], object]] = {
        "short_file": lambda: np.load(folder / "shard-00005.npy"),
        "killed": lambda: os.kill(os.getpid(), KILL),
        "segfault": lambda: ctypes.string_at(0),
        "full_disk": lambda: Path("/dev/full").write_bytes(bytes(300_000)),
        "absent": lambda: time.sleep(PATIENCE),
        "key_error": lambda: {"loss": 2.3}["loss/train"],
        "open_files": _open_many,
        "loader_killed": lambda: list(torch.utils.data.DataLoader(_Fatal(), num_workers=1)),
    }
    faulthandler.enable()
    if act == "all_shapes":
        torch.nn.Linear(512, 64)(torch.ones(4, 256))
    if rank == ODD and act in acts:
        acts[act]()


def _open_many() -> None:
    import contextlib  # noqa: PLC0415 - only in a played rank
    import resource  # noqa: PLC0415

    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    with contextlib.ExitStack() as shards:
        for _ in range(80):
            shards.enter_context(Path(__file__).open("rb"))


class _Fatal:
    """A data set whose loader process is killed."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        import os  # noqa: PLC0415 - only in a played rank

        os.kill(os.getpid(), KILL)
        return index


def prepare(act: str, rank: int, folder: Path) -> None:
    """Cause a fault before the training starts."""
    import importlib  # noqa: PLC0415 - only in a played rank
    import os  # noqa: PLC0415

    import torch  # noqa: PLC0415

    if act == "no_permission" and rank >= PER_NODE:
        if os.getuid() == 0:
            os.setuid(65_534)
        (folder / "corpus.idx").read_bytes()
    if act == "no_module" and rank >= PER_NODE:
        importlib.import_module("flash_attn")
    if act == "all_no_checkpoint":
        torch.load("/checkpoints/run7/step_40000/model.pt")


def train(act: str, folder: Path) -> None:
    """A few steps of a small model whose gradients are reduced over gloo."""
    import datetime as dt  # noqa: PLC0415 - only in a played rank
    import os  # noqa: PLC0415

    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415

    rank = int(os.environ["RANK"])
    dist.set_debug_level_from_env()
    prepare(act, rank, folder)
    dist.init_process_group("gloo", timeout=dt.timedelta(seconds=WAIT))
    weights = torch.zeros(4096, requires_grad=True)
    for step in range(1, STEPS + 1):
        if step == STRIKES:
            strike(act, rank, folder)
        odd = act if step == STRIKES and rank == ODD else ""
        with torch.autograd.set_detect_anomaly(act == "nan"):
            loss = (weights - (float("nan") if odd == "nan" else 1.0)).abs().sqrt().mean()
            loss.backward()
        gradient = torch.ones(2048) if odd == "other_size" else weights.grad.clone()
        dist.broadcast(gradient, 0) if odd == "other_op" else dist.all_reduce(gradient)
        weights = (weights - 0.01).detach().requires_grad_(True)
        now = f"{dt.datetime.now(dt.UTC):%Y-%m-%d %H:%M:%S},{step:03d}"
        print(f"{now} INFO train: rank {rank} step {step} loss {float(loss):.4f}", flush=True)
    dist.destroy_process_group()


def played_rank(act: str, folder: str) -> None:
    """One rank, ending as a script does: by SIGTERM itself, or by the interpreter's hook and exit code 1."""
    import os  # noqa: PLC0415 - only in a played rank
    import signal  # noqa: PLC0415

    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # elastic's handler for functions would raise here
    try:
        train(act, Path(folder))
    except BaseException:  # noqa: BLE001 - the interpreter's own last act, which a forked process skips
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
        sys.stdout.flush()
        os._exit(1)


def agent(act: str, folder: Path, number: int, port: int) -> None:
    """The torchrun agent of one node: this process becomes it, under the node's name if permitted."""
    import ctypes  # noqa: PLC0415 - only in a played agent
    import os  # noqa: PLC0415
    import socket  # noqa: PLC0415

    name = NODES[number].encode()
    libc = ctypes.CDLL(None)
    if libc.unshare(0x0400_0000) == 0:  # a host name of its own
        libc.sethostname(name, len(name))
    socket.getfqdn = lambda name="": name or NODES[number]  # no name server knows it; asking takes seconds
    os.environ |= {
        "GLOO_SOCKET_IFNAME": "lo",
        "TORCH_DISTRIBUTED_DEBUG": "DETAIL" if act.startswith("other") else "OFF",
    }
    out = os.open(folder / "logs" / f"{NODES[number]}.log", os.O_CREAT | os.O_WRONLY, 0o644)
    os.dup2(out, 1)
    os.dup2(out, 2)
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std  # noqa: PLC0415
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch  # noqa: PLC0415

    tree = folder / "logs" / "torchrun" / NODES[number]
    tree.mkdir(parents=True)
    config = LaunchConfig(
        len(NODES), len(NODES), PER_NODE, rdzv_backend="static", rdzv_endpoint=f"127.0.0.1:{port}", run_id="lm", max_restarts=0,
        rdzv_configs={"rank": number, "timeout": 30}, start_method="fork", monitor_interval=0.1, local_addr="127.0.0.1",
        logs_specs=DefaultLogsSpecs(log_dir=str(tree), redirects=Std.ALL),
    )  # fmt: skip
    elastic_launch(config, played_rank)(act, str(folder))


def perform(act: str, place: Path) -> None:
    """Play one live incident in `place`: two agents, stopped when they take too long."""
    import multiprocessing  # noqa: PLC0415 - only in the lab's interpreter
    import os  # noqa: PLC0415
    import socket  # noqa: PLC0415
    import time  # noqa: PLC0415

    import numpy as np  # noqa: PLC0415

    (place / "logs").mkdir(parents=True)
    np.save(place / "shard-00005.npy", np.arange(9000))
    os.truncate(place / "shard-00005.npy", 5000)
    (place / "corpus.idx").touch(0o600)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    fork = multiprocessing.get_context("fork")
    agents = [fork.Process(target=agent, args=(act, place, number, port)) for number in range(len(NODES))]
    for process in agents:
        process.start()
    until = time.monotonic() + PATIENCE
    for process in agents:
        process.join(max(0.1, until - time.monotonic()))
        if process.is_alive():
            process.terminate()
            process.join(10)
    for name in ("shard-00005.npy", "corpus.idx"):
        (place / name).unlink()


def stage(folder: Path) -> None:
    """Play all live incidents below `folder`, two at a time; runs in the interpreter that has torch."""
    import multiprocessing  # noqa: PLC0415 - only in the lab's interpreter

    import torch  # noqa: PLC0415
    import torch._inductor.standalone_compile  # noqa: PLC0415 - agents load it at their end; once is enough
    import torch.distributed.run  # noqa: PLC0415 - once, for all that are forked from here

    torch.set_num_threads(1)
    fork = multiprocessing.get_context("fork")
    acts = list(LIVE)
    for first in range(0, len(acts), AT_ONCE):
        playing = [fork.Process(target=perform, args=(act, folder / act)) for act in acts[first : first + AT_ONCE]]
        for process in playing:
            process.start()
        for process in playing:
            process.join()


def played(lab: Path, folder: Path) -> list[tuple[str, str, Truth]]:
    """Run the live incidents with the lab's interpreter; return name, kind and truth of each."""
    command = [str(lab), str(Path(__file__).resolve()), "--stage", str(folder)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    for number, act in enumerate(LIVE):
        if number % 2:
            nodes = {
                node: list(range(first, first + PER_NODE)) for node, first in zip(NODES, (0, PER_NODE), strict=True)
            }
            job = {"id": act, "framework": "pytorch-ddp", "world_size": 8, "state": "FAILED", "nodes": nodes}
            (folder / act / "job.yaml").write_text(json.dumps(job) + "\n", "utf-8")
    return [(act, f"live_{act}", truth) for act, truth in LIVE.items()]


# --- the figures ------------------------------------------------------------------------------------------------------


def judge(incident: str, name: str, truth: Truth, report: Report) -> Named:
    """Compare the first diagnosis with the truth."""
    best = report.diagnoses[0] if report.diagnoses else None
    suspects = best.suspects if best else ()
    answers = tuple(diagnosis.fault for diagnosis in report.diagnoses[:3]) or (report.verdict,)
    told = " ".join(
        f"{suspect.kind}:{suspect.rank if suspect.rank is not None else ''}@{suspect.node or ''}"
        for suspect in suspects[:3]
    )
    right = bool(best) and answers[0] in {truth.fault, *truth.accept}
    return Named(incident, name, truth, placed(truth, report), right, answers, told)


def placed(truth: Truth, report: Report) -> bool:
    """Whether the first suspect of the first diagnosis is at fault; if all failed alike, whether none is named."""
    if not report.diagnoses:
        return False
    suspects = report.diagnoses[0].suspects
    if not suspects:
        return truth.job
    first = suspects[0]
    if truth.job:
        alone = len(suspects) == 1 or first.score > suspects[1].score
        return first.kind == "job" or not (alone and (first.rank is not None or first.node is not None))
    if first.rank is not None:
        return first.rank in truth.ranks
    return first.node is not None and first.node in {*truth.nodes, *truth.addresses}


def figures(named: Sequence[Named]) -> dict[str, object]:
    """Return the shares over all, and the counts by kind."""
    kinds = dict.fromkeys(item.kind for item in named)
    by = {
        name: [
            sum(item.place for item in named if item.kind == name),
            sum(item.fault for item in named if item.kind == name),
            sum(item.kind == name for item in named),
        ]
        for name in kinds
    }
    share = {
        "place": round(mean(item.place for item in named), 4),
        "fault": round(mean(item.fault for item in named), 4),
    }
    return {"incidents": len(named), **share, "asked_place": ASKED, "by_kind": by}


def render(named: Sequence[Named], *, verbose: bool) -> str:
    """Return the figures for people."""
    numbers = figures(named)
    lines = [f"{len(named)} incidents", f"{'place named first':24}{numbers['place']:8.1%}  (asked: {ASKED:.0%})"]
    lines += [f"{'fault named first':24}{numbers['fault']:8.1%}", "", f"{'kind':24}{'place':>6}{'fault':>6}{'of':>4}"]
    by = numbers["by_kind"]
    if isinstance(by, dict):
        lines += [f"{name:24}{place:6d}{fault:6d}{count:4d}" for name, (place, fault, count) in by.items()]
    for item in named if verbose else ():
        if not (item.place and item.fault):
            what = "place" if item.fault else "fault" if item.place else "both "
            truth = (
                "the job" if item.truth.job else f"ranks {list(item.truth.ranks)[:9]} nodes {list(item.truth.nodes)}"
            )
            lines.append(
                f"{what} {item.incident}: {item.truth.fault} of {truth}; said {', '.join(item.answers)} of {item.suspect or 'nobody'}"
            )
    return "\n".join(lines)


def incidents(seed: int, folder: Path, lab: Path | None) -> list[tuple[str, str, Truth]]:
    """Write all incidents below `folder`; return name, kind and truth of each."""
    names = list(enumerate(plan()))
    if lab is not None:
        firsts = {name: number for number, name in reversed(names)}
        names = [(number, name) for number, name in names if name not in GIVES or firsts[name] != number]
    done = []
    for number, name in names:
        incident = f"{number:02d}-{name}"
        done.append((incident, name, make(name, number, seed, folder / incident)))
    return done + (played(lab, folder) if lab is not None else [])


def main() -> int:
    """Make, diagnose and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="folder to leave the bundles in")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--lab", type=Path, metavar="PYTHON", help="has torch and numpy: play 15 of them live")
    parser.add_argument("--stage", type=Path, help=argparse.SUPPRESS)  # how --lab's interpreter is called
    options = parser.parse_args()
    if options.stage:
        stage(options.stage)
        return 0
    if options.keep and options.keep.exists() and any(options.keep.iterdir()):
        parser.error(f"{options.keep} is not empty")
    from bot.diagnosis.batch import reports  # noqa: PLC0415 - the lab's interpreter has none of its dependencies
    from bot.rulebase.loader import knowledge  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="incidents-") as scratch:
        folder = options.keep or Path(scratch)
        made = incidents(options.seed, folder, options.lab)
        told = reports(knowledge(None), [folder / item for item, *_ in made])
        named = [judge(*item, report) for item, (report, _) in zip(made, told, strict=True)]
    if options.json:
        print(json.dumps({"figures": figures(named), "incidents": [asdict(item) for item in named]}, indent=1))
    else:
        print(render(named, verbose=options.verbose))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
