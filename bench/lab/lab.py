"""Records the lab: `grid.py` under torchrun with one act per case, stored as evidence bundles with the truth.

    python bench/lab/lab.py --python /tmp/lab/bin/python --out tests/bundles [--only lab-asleep,lab-lock]

Of each case: every rank's log, the agents' logs, three samples of every rank's stacks by `py-spy dump --json` (loader
workers and other Python children as rank-N.<pid>.json), and every rank's Flight Recorder ring, of even ranks as JSON
and of odd ranks as pickle. A job that fails or ends has logs only, and the rings that its ranks wrote on the way out.
We write only job.yaml, bundle.yaml and case.yaml (see judge.py); this machine's paths and names are replaced, and white
space and nulls are removed from stacks.

Jobs whose times matter run one at a time. Hung jobs need no CPU while their silence grows, so the next one starts
meanwhile. The whole takes about 20 minutes on two cores; the full-disk case needs permission to mount.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from record import HOME, environment, free_port, host_name, replacements, scrub, stamp

NODES = ("node-a", "node-b")
PROGRAM = ("grid.py", "acts.py")
WHO = re.compile(rb"rank (\d+) \| local rank (\d+) \| pid (\d+)")
STAMPED = re.compile(rb"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+)\] iteration")
RING = 8  # collectives that a ring holds
HUNG = (100.0, 116.0, 132.0)  # seconds after the act at which stacks are sampled
LIVE = (0.0, 8.0, 16.0)
START = 18.0  # seconds between the starts of jobs that will hang
LIMIT = 330.0


@dataclass(frozen=True)
class Case:
    """One run: the fault, its place, and the truth."""

    name: str
    fault: str  # a class of rules/faults.yaml
    what: str  # the act, for people
    act: str = ""
    rank: int = -1  # the rank of the act; -1: all
    step: int = 0
    culprits: tuple[int, ...] | None = None  # None: the act's rank
    also: tuple[str, ...] = ()  # classes that are also acceptable
    hang: bool | str = False
    grid: tuple[int, int, int] = (2, 2, 1)  # tensor, data, pipeline
    nodes: int = 2
    extra: tuple[str, ...] = ()
    until: str = "end"  # "end", "acted", or a pattern whose `nth` line starts the samples
    nth: int = 1
    samples: tuple[float, ...] = LIVE
    during: str = ""  # "pause": all ranks are stopped for a while; "tiny": checkpoints go to a file system of 3 MiB

    @property
    def world(self) -> int:
        """The number of ranks."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks at fault."""
        if self.culprits is not None:
            return self.culprits
        return (self.rank,) if self.rank >= 0 else ()


def hung(name: str, fault: str, what: str, act: str, rank: int, **rest: Any) -> Case:
    """Return a case that hangs, and is sampled after two minutes of silence."""
    return Case(name, fault, what, act, rank, rest.pop("step", 30), hang=True, until="acted", samples=HUNG, **rest)


SAVES = ("--save-interval", "10")
WORKER = ("--workers", "1")
PIPES = (1, 2, 2)
EIGHT = (2, 2, 2)

HANGS = (
    hung("lab-asleep", "deadlock", "rank 2 polls in time.sleep for a file that nobody writes", "asleep", 2),
    hung(
        "lab-asleep-pipeline",
        "deadlock",
        "rank 4 of 6, in the last of three stages, polls in time.sleep",
        "asleep",
        4,
        grid=(1, 2, 3),
    ),
    hung("lab-lock", "deadlock", "two threads of rank 1 take two locks in opposite order", "lock", 1, grid=PIPES),
    hung("lab-gil", "deadlock", "a C call of rank 3 blocks and keeps the interpreter lock", "gil", 3, nodes=1),
    hung(
        "lab-worker-read",
        "dataloader_fault",
        "the loader worker of rank 2 reads from a decoder process that is stopped (SIGSTOP)",
        "worker-read",
        2,
        extra=WORKER,
    ),
    hung(
        "lab-worker-loop",
        "dataloader_fault",
        "the loader worker of rank 0 draws again and again in user code",
        "worker-loop",
        0,
        extra=WORKER,
        grid=(1, 4, 1),
    ),
    hung("lab-skip", "collective_desync", "rank 3 leaves one gradient reduction out", "skip", 3, grid=PIPES),
    hung("lab-order", "collective_desync", "rank 1 goes about two groups' reductions in the other order", "order", 1),
    hung(
        "lab-operation",
        "collective_desync",
        "rank 2 broadcasts where the others reduce",
        "operation",
        2,
        grid=(1, 4, 1),
    ),
    hung("lab-stopped", "deadlock", "rank 1 is stopped (SIGSTOP)", "signal:SIGSTOP", 1, also=("node_lost",)),
    hung(
        "lab-storage-stalled",
        "storage_io",
        "the third checkpoint of rank 0 goes to a storage client that is stopped (SIGSTOP)",
        "stalled-storage",
        0,
        step=30,
        extra=SAVES,
        also=("checkpoint_save",),
    ),
)
STALLS = (
    Case(
        "lab-storage-slow",
        "storage_io",
        "the third checkpoint of rank 0 goes to a storage client that takes 8 KiB every 3 s",
        "throttled-storage",
        0,
        30,
        hang="either",
        extra=SAVES,
        until="acted",
        samples=HUNG,
        also=("checkpoint_save",),
    ),
)
CRASHES = (
    Case("lab-killed", "killed", "SIGKILL to rank 6", "signal:SIGKILL", 6, 30, grid=EIGHT),
    Case("lab-segfault", "segfault", "native code of rank 1 reads address 8", "segfault", 1, 30, grid=PIPES),
    Case("lab-error", "code_bug", "KeyError in user code of rank 3", "error", 3, 30),
    Case(
        "lab-sizes", "collective_desync", "rank 1 reduces 4608 numbers, the others 4096", "sizes", 1, 30, grid=(1, 4, 1)
    ),
    Case(
        "lab-disk-full",
        "disk_full",
        "checkpoints of rank 0 go to a tmpfs of 3 MiB until it is full",
        "opened-storage",
        culprits=(0,),
        extra=SAVES,
        during="tiny",
    ),
    Case(
        "lab-disk-full-native",
        "disk_full",
        "as before, written by torch's own file writer, which names no reason",
        culprits=(0,),
        also=("checkpoint_save",),
        extra=SAVES,
        during="tiny",
    ),
)
QUIET = (
    Case("lab-nan", "loss_not_finite", "a mask leaves no target from step 60 on: 0/0", "nan", -1, 60, until="line:70"),
    Case(
        "lab-slow-rank",
        "straggler",
        "rank 2 computes 0.2 s more on every step",
        "slow-rank",
        2,
        1,
        grid=(1, 4, 1),
        until="line:40",
    ),
    Case(
        "lab-slow-rank-tensor",
        "straggler",
        "rank 1 computes 0.2 s more on every step; its tensor peer waits for it within its own forward pass",
        "slow-rank",
        1,
        1,
        until="line:40",
    ),
    Case(
        "lab-slow-all",
        "throughput_drop",
        "all compute 0.15 s more from step 60 on",
        "slow-all",
        -1,
        60,
        until="line:85",
    ),
    Case(
        "lab-leak",
        "memory_leak",
        "rank 1 keeps 64 MiB a step from step 15 on",
        "leak",
        1,
        15,
        extra=("--batch", "256"),
        until="line:30",
    ),
    Case(
        "lab-rate",
        "lr_schedule",
        "the schedule is no longer moved on from step 30 of a warm-up of 80",
        "rate",
        -1,
        30,
        extra=("--warmup", "80", "--log-interval", "2"),
        until="line:100",
    ),
)
HEALTHY = (
    Case(
        "lab-well-evaluation",
        "healthy",
        "the second evaluation is under way, in silence; the first took as long",
        grid=(1, 4, 1),
        extra=("--eval-interval", "20", "--eval-batches", "3600"),
        until="evaluating on",
        nth=2,
        samples=(6.0, 14.0, 22.0),
    ),
    Case(
        "lab-well-checkpoint",
        "healthy",
        "the second checkpoint is under way, 35 s as the first; the others wait in a barrier",
        "long-checkpoint",
        extra=("--save-interval", "20"),
        until="saving checkpoint",
        nth=2,
        samples=(8.0, 20.0, 32.0),
    ),
    Case("lab-well-compile", "healthy", "torch.compile is at work before the first step", extra=("--compile",),
         until="compiling the model", nth=4, samples=(2.0, 10.0, 18.0)),
    Case("lab-well-loader", "healthy", "loader workers build their index for 36 s before the first batch", "warm-up",
         extra=WORKER, until="part 2 of 12", nth=4, samples=(2.0, 12.0, 22.0)),
    Case("lab-well-one-logs", "healthy", "only the last rank prints", extra=("--quiet-ranks",), until="line:60"),
    Case("lab-well-paused", "healthy", "all ranks were stopped for 30 s (SIGSTOP, SIGCONT) and went on", extra=("--log-interval", "2"), until="line:60",
         during="pause", samples=(38.0, 46.0, 54.0)),
    Case("lab-well-uneven", "healthy", "sequence lengths and so step times differ by six", "uneven", until="line:40"),
    Case("lab-well-early", "healthy", "training stops early, at step 70 of 400", "early", -1, 70, grid=PIPES),
)  # fmt: skip


@dataclass
class Running:
    """A running job."""

    case: Case
    work: Path
    agents: list[subprocess.Popen[bytes]]
    began: float
    samples: dict[str, float] = field(default_factory=dict)

    def outputs(self, name: str = "std*.log") -> Iterator[tuple[str, Path]]:
        """Node and path of every rank's output."""
        for node in NODES:
            for path in sorted((self.work / "torchrun" / node).glob(f"*/attempt_0/[0-9]*/{name}")):
                yield node, path

    def ranks(self) -> dict[int, tuple[int, str, Path]]:
        """Rank -> (pid, node, folder of its output), of the ranks that have announced themselves."""
        found = {}
        for node, path in self.outputs("stderr.log"):
            if who := WHO.search(path.read_bytes()):
                found[int(who[1])] = (int(who[3]), node, path.parent)
        return found

    def over(self) -> bool:
        """Whether all agents have ended."""
        return all(agent.poll() is not None for agent in self.agents)


def options(case: Case, work: Path) -> list[str]:
    """Return the arguments of grid.py but for the act."""
    sizes = zip(("tensor", "data", "pipeline"), case.grid, strict=True)
    grid = [text for axis, size in sizes for text in (f"--{axis}-parallel", str(size))]
    return ["--checkpoints", str(work / "checkpoints"), *grid, *case.extra]


def prepare(work: Path) -> None:
    """The program and the folders that it needs."""
    for name in PROGRAM:
        shutil.copy(Path(__file__).with_name(name), work)
    for folder in ("rings", "checkpoints", "cache"):
        (work / folder).mkdir()


def start(case: Case, python: Path, work: Path) -> Running:
    """Start the agents, each writing to <node>.log."""
    act = ["--act", case.act, "--act-rank", str(case.rank), "--act-step", str(case.step)] if case.act else []
    ring = {"TORCH_FR_BUFFER_SIZE": str(RING), "TORCHINDUCTOR_CACHE_DIR": str(work / "cache"), "OMP_NUM_THREADS": "1"}
    port, began, agents = free_port(), time.time(), []
    for node in NODES[: case.nodes]:
        size = ["--nnodes", str(case.nodes), "--nproc-per-node", str(case.world // case.nodes)]
        meet = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "lm-grid"]
        files = ["--log-dir", str(work / "torchrun" / node), "--redirects", "3", "--local-addr", "127.0.0.1"]
        launch = [str(python), "-m", "torch.distributed.run", *size, *meet, *files, "--max-restarts", "0"]
        command = [*host_name(node), *launch, str(work / PROGRAM[0]), "--work", str(work), *options(case, work), *act]
        with (work / f"{node}.log").open("wb") as out:
            agents.append(subprocess.Popen(command, stdout=out, stderr=out, env=environment() | ring, cwd=work,
                                           start_new_session=True))  # fmt: skip
        time.sleep(0.5)
    return Running(case, work, agents, began)


def wait_for(job: Running, true: Callable[[], bool], limit: float = LIMIT) -> bool:
    """Wait for a condition; return False if the job ended first. Raises TimeoutError."""
    until = time.monotonic() + limit
    while not true():
        if job.over():
            return False
        if time.monotonic() > until:
            raise TimeoutError(f"{job.case.name}: waited {limit:.0f} s for {job.case.until}")
        time.sleep(0.2)
    return True


def seen(job: Running) -> bool:
    """Whether the condition for sampling holds."""
    until = job.case.until
    if until == "acted":
        return any(job.work.glob("acted-*"))
    text = b"".join(path.read_bytes() for _, path in job.outputs())
    if until.startswith("line:"):
        return any(int(n) >= int(until[5:]) for n in re.findall(rb"iteration +(\d+)/", text))
    return text.count(until.encode()) >= job.case.nth


def children(pid: int) -> list[int]:
    """Return the processes that `pid` has started, and theirs."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, path.read_text("ascii").split()):
                found += [child, *children(child)]
    return found


def is_python(pid: int) -> bool:
    """Whether a process is a Python interpreter."""
    with suppress(OSError):
        return "python" in Path(f"/proc/{pid}/exe").readlink().name
    return False


def spy(python: Path, pid: int) -> bytes:
    """Return py-spy's dump of a process, empty on failure. A stopped process is read without pausing it."""
    for how in ([], ["--nonblocking"]):
        with suppress(subprocess.TimeoutExpired):
            command = [str(python.with_name("py-spy")), "dump", "--json", *how, "--pid", str(pid)]
            told = subprocess.run(command, capture_output=True, check=False, timeout=15)
            if told.returncode == 0 and told.stdout:
                return told.stdout
    return b""


def packed(dump: bytes) -> bytes:
    """Return a dump without white space, nulls, entry-frame marks and short file names: half the size."""
    dropped = {"short_filename", "is_entry", "is_shim_entry"}

    def lean(value: dict[str, Any]) -> dict[str, Any]:
        return {key: item for key, item in value.items() if item is not None and key not in dropped}

    return json.dumps(json.loads(dump, object_hook=lean), separators=(",", ":"), ensure_ascii=False).encode()


def sample(job: Running, python: Path, number: int) -> None:
    """Sample the stacks of every rank and its Python children once."""
    folder = job.work / "stacks" / str(number)
    folder.mkdir(parents=True)
    job.samples[str(number)] = time.time()
    for rank, (pid, node, _) in sorted(job.ranks().items()):
        for process in (pid, *filter(is_python, children(pid))):
            if text := spy(python, process):
                name = f"rank-{rank}.json" if process == pid else f"rank-{rank}.{process}.json"
                (folder / name).write_bytes(scrub(packed(text), pairs(job, python, node)))


def pairs(job: Running, python: Path, node: str) -> list[tuple[re.Pattern[bytes], bytes]]:
    """Return the replacements for the evidence of `node`."""
    found = replacements(argparse.Namespace(python=python), job.work, node)
    return [(old, new.replace(b"lm-tiny", b"lm-grid")) for old, new in found]


def pause(job: Running, seconds: float) -> None:
    """Stop every rank for a while."""
    pids = [pid for pid, _, _ in job.ranks().values()]
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for pid in pids:
            os.kill(pid, number)
        time.sleep(seconds if number == signal.SIGSTOP else 0)


def observe(job: Running, python: Path) -> bool:
    """Wait for the sampling condition, take samples and rings; return False if the job ended before."""
    if not wait_for(job, (lambda: False) if job.case.until == "end" else (lambda: seen(job))):
        return False
    trigger = time.monotonic()
    if job.case.during == "pause":
        pause(job, 30.0)
    for number, offset in enumerate(job.case.samples, 1):
        if wait_for(job, lambda when=trigger + offset: time.monotonic() >= when):
            sample(job, python, number)
    (job.work / "rings" / "request").touch()
    wanted = job.case.world
    with suppress(TimeoutError):
        wait_for(job, lambda: len(list((job.work / "rings").glob("pickle_rank_*[0-9]"))) >= wanted, 4)
    return not job.over()


def stop(job: Running) -> None:
    """End all processes of this job: the agents first, so that they log nothing more."""
    for agent in job.agents:
        if agent.poll() is not None:
            continue
        family = [agent.pid, *children(agent.pid)]
        for pid in family:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        agent.wait()


class NoCode(pickle.Unpickler):
    """Loads only numbers, text and containers, the content of a ring."""

    def find_class(self, module: str, name: str) -> Any:
        """Refuse."""
        raise pickle.UnpicklingError(f"{module}.{name} in a ring")


def scrub_ring(data: bytes, pairs: list[tuple[re.Pattern[bytes], bytes]]) -> bytes:
    """Return a pickled ring with replacements in its strings; pickled again, since strings store lengths."""

    def scrubbed(value: Any) -> Any:
        if isinstance(value, str):
            return scrub(value.encode(), pairs).decode()
        if isinstance(value, dict):
            return {scrubbed(key): scrubbed(item) for key, item in value.items()}
        return type(value)(map(scrubbed, value)) if isinstance(value, list | tuple) else value

    return pickle.dumps(scrubbed(NoCode(io.BytesIO(data)).load()), protocol=2)


def collect(job: Running, python: Path, out: Path) -> dict[str, dict[str, Any]]:
    """Copy logs, stacks and rings with replacements; return bundle.yaml's entries. Empty files are skipped."""
    texts: dict[str, tuple[str, int | None, bytes]] = {}
    for node in NODES[: job.case.nodes]:
        texts[f"logs/{node}.log"] = (node, None, (job.work / f"{node}.log").read_bytes())
    for rank, (_, node, folder) in job.ranks().items():
        texts[f"logs/rank-{rank}.log"] = (node, rank, (folder / "stdout.log").read_bytes())
        texts[f"logs/rank-{rank}.err"] = (node, rank, (folder / "stderr.log").read_bytes())
        ring = job.work / "rings" / f"{('json', 'pickle')[rank % 2]}_rank_{rank}"
        if ring.exists():
            name = f"flight_recorder/{'json_rank' if rank % 2 == 0 else 'pickle_rank'}_{rank}"
            texts[name] = (node, rank, ring.read_bytes())
    for path in (job.work / "stacks").glob("*/*"):
        rank = int(path.name.split(".")[0].removeprefix("rank-"))
        texts[f"stacks/{path.parent.name}/{path.name}"] = (job.ranks()[rank][1], rank, path.read_bytes())
    files: dict[str, dict[str, Any]] = {}
    for name, (node, rank, text) in sorted(texts.items()):
        if text:
            target = out / name
            target.parent.mkdir(parents=True, exist_ok=True)
            clean = scrub_ring if "pickle_rank" in name else scrub
            target.write_bytes(clean(text, pairs(job, python, node)))
            files[name] = {"node": node} | ({} if rank is None else {"rank": rank})
    return files


def last_progress(job: Running) -> float | None:
    """Return when the last iteration line was printed."""
    times = [item for _, path in job.outputs("stdout.log") for item in STAMPED.findall(path.read_bytes())]
    if not times:
        return None
    whole, part = max(times).decode().split(".")
    return time.mktime(time.strptime(whole, "%Y-%m-%d %H:%M:%S")) - time.timezone + float(f"0.{part}")


def describe(job: Running, *, alive: bool, now: float) -> dict[str, Any]:
    """Return the content of job.yaml."""
    case, nodes = job.case, {}
    for rank, (_, node, _) in sorted(job.ranks().items()):
        nodes.setdefault(node, []).append(rank)
    failed = any(agent.poll() for agent in job.agents)
    told: dict[str, Any] = {
        "id": f"lm-grid-{case.name.removeprefix('lab-')}",
        "name": "lm-grid",
        "framework": "pytorch",
        "world_size": case.world,
        "attempt": 0,
        "state": "RUNNING" if alive else "FAILED" if failed else "COMPLETED",
        "start": stamp(job.began),
        "end": None if alive else stamp(now),
        "collected_at": stamp(now),
        "nodes": nodes,
        "layout": dict(zip(("tp", "dp", "pp"), case.grid, strict=True)),
        "args": " ".join(options(case, HOME / "lm-grid")),
        "log_interval": int(case.extra[-1]) if "--log-interval" in case.extra else 1,
        "checkpoint_interval": int(case.extra[1]) if "--save-interval" in case.extra else None,
        "samples": {number: stamp(when) for number, when in job.samples.items()} or None,
    }
    return {key: value for key, value in told.items() if value is not None}


def truth(job: Running, *, alive: bool) -> dict[str, Any]:
    """Return the content of case.yaml."""
    case, acted = job.case, [float(path.read_text("ascii")) for path in job.work.glob("acted-*")]
    progress = last_progress(job)
    told: dict[str, Any] = {
        "fault": case.fault,
        "also": list(case.also) or None,
        "ranks": list(case.ranks),
        "hang": case.hang,
        "what": case.what,
        "seen": ("hung" if case.hang is True else "running") if alive else "ended",
        "acted_at": stamp(min(acted)) if acted else None,
        "last_progress": stamp(progress) if progress else None,
        "last_progress_s": round(progress, 3) if progress else None,
    }
    return {key: value for key, value in told.items() if value is not None}


def write(job: Running, python: Path, out: Path, *, alive: bool, now: float) -> int:
    """Write the bundle; return its size in bytes."""
    files = collect(job, python, out)
    said = {
        "format": 1,
        "note": f"Real processes, recorded by bench/lab/lab.py --only {job.case.name}",
        "sources": [
            {"source": kind, "asked": "all", "got": f"{sum(name.startswith(kind) for name in files)} files"}
            for kind in ("logs", "stacks", "flight_recorder")
        ],
        "redaction": [
            "paths of the recording machine -> /home/user",
            "its host name -> node-a, node-b",
            "pickled rings packed again for that",
        ],
        "zone": "UTC",
        "files": {
            name: {"node": it["node"], "zone": "UTC"} | it for name, it in files.items() if name.startswith("logs")
        },
    }
    documents = {"job": describe(job, alive=alive, now=now), "bundle": said, "case": truth(job, alive=alive)}
    for name, content in documents.items():
        (out / f"{name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False, width=120), "utf-8")
    return sum(path.stat().st_size for path in out.rglob("*") if path.is_file())


def mount_tiny(path: Path) -> None:
    """Mount a file system of 3 MiB at `path`; needs permission to mount."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(path)], check=True)


def record(case: Case, python: Path, out: Path) -> str:
    """Run one case from start to bundle; return a line on the result."""
    with tempfile.TemporaryDirectory(prefix="lab-", ignore_cleanup_errors=True) as folder:
        work = Path(folder)
        prepare(work)
        if case.during == "tiny":
            mount_tiny(work / "checkpoints")
        job = start(case, python, work)
        try:
            alive = observe(job, python)
            now = time.time()
            stop(job)
            shutil.rmtree(out / case.name, ignore_errors=True)
            size = write(job, python, out / case.name, alive=alive, now=now)
        finally:
            stop(job)
            if case.during == "tiny":
                subprocess.run(["umount", "--lazy", str(work / "checkpoints")], check=True)
    seen_as = "alive" if alive else "ended"
    return f"{case.name}: {seen_as}, {len(job.samples)} samples, {size / 1000:.0f} kB, {now - job.began:.0f} s"


def attempt(case: Case, python: Path, out: Path) -> None:
    """Record one case and print the result."""
    try:
        print(record(case, python, out), flush=True)
    except (OSError, TimeoutError, subprocess.SubprocessError, ValueError, KeyError) as error:
        print(f"{case.name}: NOT RECORDED: {error!r}", flush=True)


def main() -> None:
    """Record the selected cases, the hangs last and in parallel."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--python", type=Path, default=Path("/tmp/lab/bin/python"), help="has torch and numpy; py-spy beside it"
    )
    parser.add_argument("--out", type=Path, default=Path("tests/bundles"))
    parser.add_argument("--only", default="", help="names, comma between")
    args = parser.parse_args()
    if not args.python.with_name("py-spy").exists():
        sys.exit(f"no py-spy beside {args.python}")
    wanted = set(filter(None, args.only.split(",")))
    chosen = [case for case in (*QUIET, *HEALTHY, *CRASHES) if not wanted or case.name in wanted]
    for case in chosen:
        attempt(case, args.python, args.out)
    threads = []
    for case in (case for case in (*HANGS, *STALLS) if not wanted or case.name in wanted):
        threads.append(threading.Thread(target=attempt, args=(case, args.python, args.out)))
        threads[-1].start()
        time.sleep(START)
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
