"""Buries the benchmark's cases in jobs of 64 ranks and a gigabyte, with a failure cascade; measures the lost points.

    python bench/buried.py [CASES] [--size 1G] [--ranks 64] [--seed N] [--only ID] [--without PART]
                           [--keep DIR] [--json] [--verbose]

Each case becomes a folder of logs as a person would find it: hours of healthy text of one framework, the case's own
text at the end of its rank's log, followed by the other ranks' messages after that rank is gone. If a case has
iteration lines, no other text has any; if it fails before training, no rank trains. Runs that only slow down, spike or
are healthy have no cascade. The same seed gives the same bytes.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import yaml
from buried_text import (
    BLOCK_BYTES,
    NODE,
    PARTS,
    SECONDS,
    STEPS,
    TORCHES,
    Phase,
    State,
    Teardown,
    Voice,
    block,
    head,
    job_end,
    job_head,
    kernel_noise,
    voice_for,
)
from scan_data import byte_count  # both are next to this script

from bot.authoring.accuracy import ScoredCase, evaluate_cases, figures, judge
from bot.authoring.cases import LabelledCase, read_case
from bot.diagnosis.diagnose import diagnose_bundle
from bot.rulebase.loader import Knowledge, knowledge
from kb.parsers.logs.progress.formats import read_line
from kb.parsers.logs.timestamps import find_time

BENCHMARK = Path(__file__).resolve().parent.parent.parent / "shared" / "benchmark"
MOST_LOST = 3.0  # points of top-1 required
VARIANTS = 3  # of quiet ranks' text
LONGEST = 3 * 86400  # a case whose stamps are farther apart has some that are no clock

# Faults that do not end a run, and those that do only where something was raised.
GOES_ON = frozenset({
    "healthy", "loss_spike", "lr_schedule", "straggler", "throughput_drop", "memory_leak", "network_congestion",
    "gpu_thermal_power", "silent_corruption",
})  # fmt: skip
MAY_GO_ON = frozenset({"loss_not_finite"})
STOPPED = frozenset({"time_limit", "cancelled", "preempted"})
# Faults for which the other ranks' timeouts would reveal more, or something else, than the case.
OF_COLLECTIVES = frozenset({
    "collective_timeout", "collective_desync", "deadlock", "dataloader_fault", "straggler", "peer_failure", "unknown",
})  # fmt: skip
# Where a run fails when it has no iterations yet: before its ranks have met, while they join, or at the first step.
BEFORE_MEETING = frozenset({
    "container_start", "unschedulable", "dependency", "driver_mismatch", "cuda_init", "config_error", "rendezvous",
    "port_in_use", "access_denied", "external_network",
})  # fmt: skip
JOINING = frozenset({"nccl_bootstrap", "rdma_setup", "shm_exhausted"})
FIRST_STEP = frozenset({
    "code_bug", "shape_or_dtype", "autograd_misuse", "data_error", "device_assert", "resource_limit", "segfault",
    "checkpoint_load", "dataloader_fault", "gpu_library",
})  # fmt: skip
_JOINING = re.compile(
    rb"init_process_group|initialize_megatron|deepspeed\.initialize|Init START|init_workers|_verify_params_across"
)
_STEPS = re.compile(rb"(?i)it/s\b|s/it\b|'loss'|\b(?:iter(?:ation)?|step|epoch)s?\W{1,3}\d")
_RAISED = re.compile(rb"Traceback|Error\b|Exception\b")

# Files: those that stay unchanged, those of a node or the job, and the rank in a name or text.
_DUMP = re.compile(
    r"py-?spy|stack|health|nhc|dcgm|nvidia-smi|lsmod|ibstat|sacct|scontrol|squeue|rocm-smi", re.IGNORECASE
)
_KERNEL = re.compile(r"^(?:dmesg|kern|kmsg|journal|syslog|messages)", re.IGNORECASE)
_JOB = re.compile(r"^(?:slurm|srun|sbatch|launcher|job|driver|raylet|master|pbs|k8s|kubectl)", re.IGNORECASE)
_RANKS = re.compile(r"ranks?[-_.]?(\d+(?:[-_]\d+)*)", re.IGNORECASE)
_SAID = re.compile(rb"\[rank ?(\d{1,6})\]", re.IGNORECASE)
_SAID_LOCAL = re.compile(rb"\[default(\d)\]")

Part = Literal["rank", "ranks", "job", "kernel", "dump"]
Stage = Literal["meeting", "joining", "first_step", "own", "running"]


@dataclass(frozen=True, slots=True)
class Own:
    """A file of a case: its kind, its text, and its ranks (empty if unknown)."""

    name: str
    part: Part
    text: bytes
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Burial:
    """The properties of a case's job, determined by the case and the seed.

    `begin` and `end` are the times of the case's own text; `rank`: the one that it is the end of. `stage`: how far the
    job got: its ranks met, they joined, a first step; `own`: the case tells itself, with iterations; `running`: others
    do.
    """

    case: LabelledCase
    files: tuple[Own, ...]
    voice: Voice
    rank: int
    stage: Stage
    ending: Literal["none", "crash", "stopped"]
    begin: float
    end: float
    seed: str
    without: frozenset[str]


def own_files(folder: Path) -> tuple[Own, ...]:
    """Return the files of a case."""
    paths = sorted(path for path in (folder / "logs").rglob("*") if path.is_file())
    return tuple(classify(path.name, path.read_bytes()) for path in paths)


def classify(name: str, text: bytes) -> Own:
    """Return the kind of a file, from its name, and its ranks, from its name or lines."""
    ranks = tuple(int(word) for word in re.split(r"[-_]", match[1])) if (match := _RANKS.search(name)) else ()
    if _DUMP.search(name):
        return Own(name, "dump", text, ranks)
    if _KERNEL.search(name):
        return Own(name, "kernel", text, ranks)
    if _JOB.search(name):
        return Own(name, "job", text, ranks)
    return Own(name, "ranks" if len(ranks) > 1 else "rank", text, ranks)


def plan(
    case: LabelledCase,
    framework: str,
    files: tuple[Own, ...],
    *,
    ranks: int,
    seed: int,
    without: frozenset[str] = frozenset(),
) -> Burial:
    """Determine the properties of the case's job."""
    rng = random.Random(f"{seed}/{case.id}")
    text = b"\n".join(file.text for file in files if file.part != "dump")
    begin, end = span(text, random.Random(f"{seed}/{case.id}/clock"))
    voice = voice_for(framework, rng)
    return Burial(
        case=case,
        files=files,
        voice=voice,
        rank=rank_of(case, files, text, ranks, rng),
        stage=stage_of(case.label, text),
        ending=ending_of(case.label, text, files),
        begin=begin,
        end=end,
        seed=f"{seed}/{case.id}",
        without=without,
    )


def rank_of(case: LabelledCase, files: tuple[Own, ...], text: bytes, ranks: int, rng: random.Random) -> int:
    """Return the rank whose log ends with the case: from a file name, the case, or its lines; else a random one."""
    told = [rank for file in files if file.part == "rank" for rank in file.ranks]
    told += [rank for rank in case.ranks if isinstance(rank, int)]
    told += [int(match) for match in _SAID.findall(text)]
    taken = {rank for file in files if file.part == "ranks" for rank in file.ranks}
    fit = [rank for rank in told if 0 <= rank < ranks and rank not in taken]
    if fit:
        return fit[0]
    rank = rng.choice([rank for rank in range(ranks) if rank not in taken])
    local = _SAID_LOCAL.search(text)
    return rank // NODE * NODE + int(local[1]) % NODE if local and ranks >= NODE else rank


def stage_of(label: str, text: bytes) -> Stage:
    """Whether the case has its own iterations, fails before there are any, or fails during those of others."""
    if any(_STEPS.search(line) or read_line(line[:4096]) for line in re.split(rb"[\r\n]+", text)):
        return "own"
    if label in BEFORE_MEETING:
        return "meeting"
    if label in JOINING or _JOINING.search(text):
        return "joining"
    return "first_step" if label in FIRST_STEP else "running"


def ending_of(label: str, text: bytes, files: tuple[Own, ...]) -> Literal["none", "crash", "stopped"]:
    """Whether the run ended, and how. A run with stack samples hangs and has not been ended yet."""
    if label in GOES_ON or (label in MAY_GO_ON and not _RAISED.search(text)):
        return "none"
    if any(re.search(r"py-?spy|stack", file.name) for file in files):
        return "none"
    return "stopped" if label in STOPPED else "crash"


def span(text: bytes, rng: random.Random) -> tuple[float, float]:
    """Return the first and last time of a text; a made-up one if it has none."""
    some_day = datetime(
        2025, rng.randint(1, 12), rng.randint(1, 28), rng.randint(0, 23), rng.randint(0, 59), tzinfo=UTC
    )
    lines = re.split(rb"[\r\n]+", text)
    years = [when for line in lines if (when := find_time(line)) is not None]
    year = datetime.fromtimestamp(years[-1], UTC).year if years else some_day.year
    times = [when for line in lines if (when := find_time(line, year)) is not None]
    if not times:
        return some_day.timestamp(), some_day.timestamp()
    last = max(times) if max(times) - times[-1] < LONGEST else times[-1]
    first = min((when for when in times if last - LONGEST < when), default=last)
    return first, last


@dataclass(frozen=True, slots=True)
class Bulk:
    """Healthy text of one phase, filled once for many ranks; each uses its last bytes."""

    text: bytes

    @classmethod
    def of(
        cls,
        voice: Voice,
        phase: Phase,
        size: int,
        end: float,
        *,
        iterations: bool = False,
        variant: int = 0,
        tracker: bool = True,
    ) -> Bulk:
        """At least `size` bytes that end at a time."""
        template = block(voice, phase, iterations=iterations, variant=variant, tracker=tracker)
        count = -(-size // int(0.9 * BLOCK_BYTES))  # a filled block is some bytes shorter or longer
        return cls(b"".join(template.fill(end - (count - n) * SECONDS, 1 + n * STEPS) for n in range(count)))

    def last(self, size: int) -> memoryview:
        """Return the last bytes, from the start of a line."""
        start = self.text.find(b"\n", max(0, len(self.text) - size)) + 1
        return memoryview(self.text)[start:]


@dataclass(frozen=True, slots=True)
class Scene:
    """The parts of a job's logs.

    `each`: bytes per rank; `begun`: the start of the job; `logs_steps`: the rank that logs iterations, with `training`
    as its text; `quiet`: the others' texts; `before`: the text before the case's own.
    """

    ranks: int
    each: int
    begun: float
    logs_steps: int | None
    training: Bulk
    quiet: list[Bulk]
    before: Bulk
    end: Teardown | None


def scene_of(burial: Burial, size: int, ranks: int) -> Scene:
    """Create the texts shared by a job's ranks."""
    each = size // ranks
    others = quiet(burial, each)
    logs_steps = logger(burial, ranks)
    training = others[0]
    if logs_steps is not None:
        tracker = "tracker" not in burial.without
        training = Bulk.of(burial.voice, "run", each, burial.end, iterations=True, tracker=tracker)
    return Scene(
        ranks=ranks,
        each=each,
        begun=burial.begin - each // BLOCK_BYTES * SECONDS - SECONDS,
        logs_steps=logs_steps,
        training=training,
        quiet=others,
        before=case_carrier(burial, each, others),
        end=teardown(burial, ranks),
    )


def write(burial: Burial, folder: Path, size: int, ranks: int) -> int:
    """Write the job's logs to `folder`/logs; returns their bytes."""
    logs = folder / "logs"
    logs.mkdir(parents=True)
    scene = scene_of(burial, size, ranks)
    silent = spoken_for(burial)
    written = sum(
        put(logs / f"rank-{rank}.log", rank_log(burial, scene, rank)) for rank in range(ranks) if rank not in silent
    )
    for file in burial.files:
        if file is not own_tail(burial):
            written += put(logs / placed_name(file, burial.rank), around(burial, file, scene))
    return written + (put_job_end(burial, logs, scene.end, ranks) if scene.end else 0)


def rank_log(burial: Burial, scene: Scene, rank: int) -> list[bytes | memoryview]:
    """Return the parts of a rank's log: its start, healthy text, and the case's text or that of a victim."""
    rng = random.Random(f"{burial.seed}/{rank}")
    size = scene.each - rng.randint(0, scene.each // 8)
    own = rank == burial.rank
    joined = {"first_step", "running"} if own else {"first_step", "running", "own"}
    tracker = not own and rank == 0 and scene.logs_steps is None and "tracker" not in burial.without
    start = head(burial.voice, ranks=scene.ranks, nccl=burial.stage in joined, tracker=tracker)
    carrier = scene.before if own else scene.quiet[rank % VARIANTS]
    if rank == scene.logs_steps:
        carrier = scene.training
    if own:
        tail = own_tail(burial)
        closing = line_end(tail.text) if tail else b""
    else:
        closing = scene.end.of_rank(rng, rank).fill(burial.end) if scene.end else b""
    return [start.fill(scene.begun, rank=rank), carrier.last(size), closing]


def own_tail(burial: Burial) -> Own | None:
    """Return the case's file that its rank's log ends with."""
    return next((file for file in burial.files if file.part == "rank"), None)


def spoken_for(burial: Burial) -> set[int]:
    """Return the ranks with text in a shared file of the case."""
    return {rank for file in burial.files if file.part == "ranks" for rank in file.ranks}


def quiet(burial: Burial, each: int) -> list[Bulk]:
    """Return the text of ranks that log no iterations."""
    phase: Phase = "run" if burial.stage in {"own", "running"} else "prepare"
    return [Bulk.of(burial.voice, phase, each, burial.end, variant=variant) for variant in range(VARIANTS)]


def case_carrier(burial: Burial, each: int, others: list[Bulk]) -> Bulk:
    """Return the text before the case's own; if that has its own start or series, only what precedes it."""
    if burial.stage == "running" and burial.begin == burial.end:
        return others[burial.rank % VARIANTS]
    phase: Phase = "run" if burial.stage == "running" else "prepare"
    return Bulk.of(burial.voice, phase, each, burial.begin, variant=burial.rank % VARIANTS)


def logger(burial: Burial, ranks: int) -> int | None:
    """Return the rank that logs iterations, not the case's own; None if the case logs them, or no rank trains."""
    if burial.stage != "running":
        return None
    rank = burial.voice.logger % ranks
    taken = spoken_for(burial) | {burial.rank}
    return rank if rank not in taken else next((item for item in range(ranks) if item not in taken), None)


def teardown(burial: Burial, ranks: int) -> Teardown | None:
    """Return how the others end; None if they continue."""
    if burial.ending == "none":
        return None
    rng = random.Random(f"{burial.seed}/teardown")
    state: State = burial.stage if burial.stage in {"meeting", "joining"} else "training"
    return Teardown(
        ranks,
        "stopped" if burial.ending == "stopped" else state,
        rng.choice(TORCHES),
        watchdog=burial.case.label not in OF_COLLECTIVES,
        srun=rng.random() < 0.5,
        without=burial.without,
    )


def around(burial: Burial, item: Own, scene: Scene) -> list[bytes | memoryview]:
    """Return a file of a case that is not the rank's log, with what comes before its text."""
    rng = random.Random(f"{burial.seed}/{item.name}")
    text = line_end(item.text)
    if item.part == "dump":
        return [text]
    if item.part == "kernel":
        booted = re.match(rb"\[ *(\d+\.\d+)\]", text)
        return [kernel_noise(rng, boot_clock=float(booted[1]) if booted else None).fill(burial.begin - 1), text]
    opening = job_head(rng, scene.ranks) if item.part == "job" else head(burial.voice, ranks=scene.ranks, nccl=False)
    return [opening.fill(scene.begun, rank=burial.rank), scene.before.last(scene.each), text]


def put_job_end(burial: Burial, logs: Path, end: Teardown, ranks: int) -> int:
    """Write the launcher's last messages: to the case's own job log if it has one, else to a new file."""
    rng = random.Random(f"{burial.seed}/job")
    wrong = [rank for rank in range(ranks) if rank != burial.rank]
    named = [burial.rank] if "named" in burial.without else rng.sample(wrong, min(len(wrong), rng.choice((1, 3))))
    text = job_end(rng, end, burial.rank, named).fill(burial.end + 1)
    own = next((file for file in burial.files if file.part == "job"), None)
    if own is None:
        return put(
            logs / f"slurm-{rng.randint(700000, 900000)}.out", [job_head(rng, ranks).fill(burial.begin - 3600), text]
        )
    with (logs / placed_name(own, burial.rank)).open("ab") as out:
        out.write(text)
    return len(text)


def placed_name(item: Own, rank: int) -> str:
    """Return the file's name; further files of a rank get the rank in their name."""
    return f"rank-{rank}.{item.name}" if item.part == "rank" and not item.ranks else item.name


def line_end(text: bytes) -> bytes:
    """Return the text with its last line ended."""
    return text if text.endswith(b"\n") else text + b"\n"


def put(path: Path, parts: list[bytes | memoryview]) -> int:
    """Write a file; returns its size."""
    with path.open("wb", buffering=0) as out:
        return sum(out.write(part) for part in parts if len(part))


# The measurement


def folders(cases: Path, only: list[str]) -> list[Path]:
    """Return the cases' folders."""
    found = sorted(path for path in cases.iterdir() if (path / "case.yaml").is_file())
    return [path for path in found if path.name in only] if only else found


def bury(folder: Path, target: Path, options: argparse.Namespace) -> Burial:
    """Write one case's job."""
    raw: Any = yaml.safe_load((folder / "case.yaml").read_text("utf-8", errors="replace"))
    framework, without = str(raw.get("framework", "")), frozenset(options.without)
    burial = plan(
        read_case(folder), framework, own_files(folder), ranks=options.ranks, seed=options.seed, without=without
    )
    write(burial, target, options.size, options.ranks)
    return burial


def measure(known: Knowledge, found: list[Path], scratch: Path, options: argparse.Namespace) -> Iterator[ScoredCase]:
    """Bury, diagnose and judge the cases in sequence."""
    for number, folder in enumerate(found):
        target = scratch / folder.name
        shutil.rmtree(target, ignore_errors=True)
        begun = time.perf_counter()
        try:
            burial = bury(folder, target, options)
            written = time.perf_counter()
            report = diagnose_bundle(known, target).report
        finally:
            if not options.keep:
                shutil.rmtree(target, ignore_errors=True)
        if sys.stderr.isatty() or options.verbose:
            took = f"written {written - begun:.1f} s, diagnosed {time.perf_counter() - written:.1f} s"
            print(
                f"{number + 1}/{len(found)} {folder.name}: {burial.voice.name}, {burial.stage}, rank {burial.rank}, {took}",
                file=sys.stderr,
            )
        yield judge(burial.case, report)


def scratch_folder(size: int) -> Path:
    """Return a folder in memory if it has room for two and a half cases, else one next to this script."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > 2.5 * size
    data = Path(__file__).resolve().parent / "data"
    if not roomy:
        data.mkdir(exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="buried-", dir=memory if roomy else data))


def lost(bare: list[ScoredCase], buried: list[ScoredCase]) -> float:
    """Return the points of top-1 over failures lost by burying."""
    return round(100 * float(figures(bare)["top1_failures"] - figures(buried)["top1_failures"]), 2)


def render(bare: list[ScoredCase], buried: list[ScoredCase], *, verbose: bool) -> str:
    """Return a table of both, side by side."""
    before, after = figures(bare), figures(buried)
    lines = [
        f"{before['cases']} cases, {before['healthy']} of them healthy",
        "",
        f"{'':24}{'bare':>8}{'buried':>8}{'points':>8}",
    ]
    for name, key in (
        ("top-1, failures", "top1_failures"),
        ("top-3, failures", "top3_failures"),
        ("needle quoted", "needle"),
        ("band likely", "likely"),
        ("likely is right", "likely_right"),
    ):
        lines.append(f"{name:24}{before[key]:8.1%}{after[key]:8.1%}{100 * (after[key] - before[key]):+8.1f}")
    points = lost(bare, buried)
    lines += [
        f"{'false alarms':24}{before['false_alarms']:8d}{after['false_alarms']:8d} of {after['healthy']} healthy runs",
        "",
        f"lost by burying: {points:.1f} points of top-1 (at most {MOST_LOST:.0f}: {'kept' if points <= MOST_LOST else 'MISSED'})",
    ]
    if verbose:
        lines += ["", *(changed(item, other) for item, other in zip(bare, buried, strict=True) if differs(item, other))]
    return "\n".join(lines)


def differs(bare: ScoredCase, buried: ScoredCase) -> bool:
    """Whether burying changed the relevant parts of an answer."""
    kept = ("top1", "top3", "needle", "false_alarm")
    return bare.answers[0] != buried.answers[0] or any(getattr(bare, text) != getattr(buried, text) for text in kept)


def changed(bare: ScoredCase, buried: ScoredCase) -> str:
    """One case before and after."""
    marks = [name for name in ("top1", "top3", "needle", "false_alarm") if getattr(bare, name) != getattr(buried, name)]
    return (
        f"{buried.case}: {buried.label}, {', '.join(marks) or 'answer'} changed: {bare.verdict} {', '.join(bare.answers)}"
        f" ({', '.join(bare.rules)}, {bare.band}) → {buried.verdict} {', '.join(buried.answers)} ({', '.join(buried.rules)},"
        f" {buried.band})"
    )


def main() -> int:
    """Print bare and buried figures, or say that there is nothing to measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="?", type=Path, default=BENCHMARK / "cases")
    parser.add_argument(
        "--size", type=byte_count, default=byte_count("1G"), help="of one case's logs, such as 64M or 1G"
    )
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", default=[], metavar="ID", help="only this case; may be given again")
    parser.add_argument(
        "--without", action="append", default=[], choices=PARTS, help="leave this part out, to see what it costs"
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave the buried cases there")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    found = folders(options.cases, options.only) if options.cases.is_dir() else []
    if not found:
        what = f"no case {', '.join(options.only)}" if options.only and options.cases.is_dir() else "no benchmark"
        print(f"skipped: there is {what} at {options.cases}", file=sys.stderr)
        return 0
    known = knowledge(None)
    chosen = {read_case(folder).id for folder in found}
    bare = [evaluate_case for evaluate_case in evaluate_cases(known, options.cases) if evaluate_case.case in chosen]
    scratch = options.keep or scratch_folder(options.size)
    begun = time.perf_counter()
    try:
        buried = list(measure(known, found, scratch, options))
    finally:
        if not options.keep:
            shutil.rmtree(scratch, ignore_errors=True)
    took = time.perf_counter() - begun
    if options.json:
        both = zip(bare, buried, strict=True)
        answer = {
            "size": options.size,
            "ranks": options.ranks,
            "seed": options.seed,
            "seconds": round(took, 1),
            "bare": figures(bare),
            "buried": figures(buried),
            "lost_points": lost(bare, buried),
            "changed": [changed(item, other) for item, other in both if differs(item, other)],
        }
        print(json.dumps(answer, indent=1))
    else:
        print(render(bare, buried, verbose=options.verbose))
        print(f"\n{len(buried)} times {options.size / 1e6:.0f} MB in {took:.0f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
