"""Measures false alarms: generates varied, noisy healthy logs, diagnoses each, counts `fault` and `no_match`.

    python bench/healthy.py [FOLDER…] [--count 300] [--seed N] [--keep DIR] [--verbose] [--json]

A log is a training program's frame (healthy_text.FRAMES) with a realistic course of loss, pace and loss scale, an
ending, a few ranks with their prefixes, and noise (healthy_text.NOISES) after which the run continues. The same seed
and number give the same log. With FOLDER, each *.log below it, a real healthy log, is judged separately as well.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from healthy_text import (
    FRAMES,
    KERNEL,
    NOISES,
    SCHEDULER_END,
    SCHEDULER_START,
    Frame,
    Noise,
    fill,
)  # it lies beside this script

from bot.authoring.accuracy import judge
from bot.authoring.cases import LabelledCase
from bot.diagnosis.diagnose import diagnose_paths
from bot.diagnosis.scan_pool import worker_pool
from bot.rulebase.loader import Knowledge, knowledge
from kb.errors import SignalboxError

ASKED = 1  # alarms, at most
SHORTEST = 8  # minimum records of progress, so that the run visibly continues
ENDINGS = {"completed": 8, "running": 6, "cut": 4, "early_stop": 3, "max_time": 3}
PREFIXES = {"none": 10, "torchrun": 3, "srun": 3, "default": 2, "pod": 2, "cri": 2, "kaggle": 1, "journal": 1}
RANKED = frozenset({"torchrun", "srun", "default", "pod"})
TRAITS = ("spike", "slow_start", "curriculum", "resumed", "fp16", "noisy", "halved", "slow_eval")
CURVES = {  # first loss, floor, share of noise
    "lm": (10.9, 2.4, 0.015),
    "tune": (1.9, 0.85, 0.07),
    "vision": (6.9, 1.9, 0.03),
    "dpo": (0.6931, 0.43, 0.06),
    "flat": (0.14, 0.11, 0.45),
}
LENGTHS = ((30, 200), (30, 200), (200, 1000), (200, 1000), (1000, 5000))

_COLOURS = {"INFO": 32, "WARNING": 33, "ERROR": 31, "loss": 36}
_COLOURED = re.compile(r"(?<![\w/])(?:INFO|WARNING|ERROR|loss)(?=[\s:=])")

Values = dict[str, Any]
Line = tuple[int, datetime, str]  # rank, when, text


@dataclass(frozen=True, slots=True)
class Shape:
    """The choices for one log: `records` lines of progress, `interval` steps apart, from `start`."""

    frame: Frame
    ending: str
    prefix: str
    world: int
    split: bool
    traits: frozenset[str]
    noises: tuple[Noise, ...]
    beside: frozenset[str]
    records: int
    interval: int
    start: int
    total: int


@dataclass(frozen=True, slots=True)
class Made:
    """One healthy log: `files` are texts by name, one file for most; `kinds` what it is made of, to count by."""

    name: str
    kinds: tuple[str, ...]
    files: dict[str, str]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The verdict on one log."""

    name: str
    kinds: tuple[str, ...]
    verdict: str
    faults: tuple[str, ...]
    rules: tuple[str, ...]
    quoted: tuple[str, ...]
    alarm: bool


def make(seed: int, number: int) -> Made:
    """Write the log of this seed and number."""
    chance = random.Random(f"{seed}/{number}")
    shape = _shape(chance, FRAMES[number % len(FRAMES)])
    lines = list(_lines(shape, chance))
    files = _files(shape, lines, chance)
    kinds = (
        f"frame {shape.frame.name}",
        f"ending {shape.ending}",
        f"prefix {shape.prefix}",
        *(f"trait {trait}" for trait in sorted(shape.traits)),
        *(f"noise {noise.name}" for noise in shape.noises),
        *(f"beside {name}" for name in sorted(shape.beside)),
    )
    return Made(f"{number:04d}-{shape.frame.name}-{shape.ending}", kinds, files)


def _shape(chance: random.Random, frame: Frame) -> Shape:
    ending = _drawn(chance, ENDINGS)
    prefix = _drawn(chance, PREFIXES)
    world = chance.choice((2, 4, 8, 8, 16, 64)) if prefix in RANKED else chance.choice((1, 1, 4, 8, 32))
    traits = frozenset(trait for trait in TRAITS if chance.random() < 0.2)
    lines = chance.randint(*chance.choice(LENGTHS))
    per_record = 1 + frame.step.strip("\n").count("\n")
    records = max(SHORTEST, (lines - 25) // per_record // (min(world, 4) if frame.every and prefix in RANKED else 1))
    records = min(records, 200) if frame.epochs else records
    interval = 1 if frame.epochs else chance.choice((1, 5, 10, 10, 50, 100))
    start = records * interval * chance.randint(1, 3) if "resumed" in traits else 0
    last = start + records * interval
    total = last if ending == "completed" else last + interval * chance.randint(records // 3 + 2, records * 4)
    fitting = [
        noise
        for noise in NOISES
        if (not noise.needs or noise.needs in frame.needs) and (noise.where != "end" or ending == "completed")
    ]
    noises = tuple(chance.sample(fitting, chance.randint(0, 7)))
    split = world > 1 and prefix == "none" and chance.random() < 0.4
    beside = frozenset(name for name in ("dmesg.log", "slurmctld.log") if chance.random() < 0.08)
    return Shape(frame, ending, prefix, world, split, traits, noises, beside, records, interval, start, total)


def _drawn(chance: random.Random, weights: dict[str, int]) -> str:
    return chance.choices(tuple(weights), tuple(weights.values()))[0]


def _lines(shape: Shape, chance: random.Random) -> Iterator[Line]:
    """Yield the log's lines in their order."""
    now = datetime(2025, chance.randint(1, 12), chance.randint(1, 28), chance.randint(0, 23), 7, 1, tzinfo=UTC)
    values = _constants(shape, chance) | {"t": now}
    course = list(_course(shape, chance))
    places = _places(shape, chance)
    values |= course[0] | {"step": shape.start}
    yield from _opening(shape, values, chance)
    checks, saves = chance.randint(5, 60), chance.randint(5, 90)
    begun = now = now + timedelta(seconds=chance.randint(20, 400))
    for place, record in enumerate(course):
        now += timedelta(seconds=record["secs"] * shape.interval)
        spent = (now - begun).total_seconds()
        values |= record | {"t": now, "elapsed": _span(spent), "wall": f"{spent:.0f}"}
        values["left"] = _span(spent / (place + 1) * (shape.total - record["step"]) / shape.interval)
        for noise in places.get(place, ()):
            yield from _said(noise, values, chance, chance.randrange(_speaking(shape)))
        yield from _events(shape, place, values, chance)
        yield from _progress(shape, values, chance)
        yield from _beats(shape, place, values, chance)
        if place % checks == checks - 1:
            now += timedelta(seconds=chance.randint(5, 200))
            yield from _said(shape.frame.check, values | {"t": now}, chance, 0)
        if place % saves == saves - 1:
            now += timedelta(seconds=chance.randint(2, 60))
            yield from _said(shape.frame.save, values | {"t": now}, chance, 0)
    yield from _close(shape, values | {"t": now + timedelta(seconds=9)}, chance)


def _constants(shape: Shape, chance: random.Random) -> Values:
    return {
        "world": shape.world,
        "half": max(1, shape.world // 2),
        "nodes": max(1, shape.world // 8),
        "total": shape.total,
        "epochs": 3,
        "hours": chance.choice((4, 11.5, 23)),
        "node": chance.choice(("gpu-07", "node003", "dgx-a12", "ip-10-2-0-4", "c1702n4")),
        "run": chance.choice(("base-7b", "exp12", "sft_zh", "abort-test", "error-analysis", "failover2", "r1")),
        "pid": chance.randint(1000, 99999),
        "job": 400321,
        "up": chance.randint(400, 999),
        "part": chance.randint(100, 999),
        "elapsed": "00:00",
        "left": "?",
        "wall": "0",
    }


def _span(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes:02d}:{rest:02d}"


def _course(shape: Shape, chance: random.Random) -> Iterator[Values]:
    """Yield the values of each record of progress: step, losses, pace, rate, scale."""
    first, floor, share = CURVES[shape.frame.curve]
    share *= 2 if "noisy" in shape.traits else 1
    pace, tokens = chance.uniform(0.2, 9.0), chance.uniform(2000, 15000)
    high = shape.records // 2 if "spike" in shape.traits else -9
    batch, best, peak = chance.choice((64, 256, 512)), first, chance.uniform(1.15, 1.7)
    for place in range(shape.records):
        step = shape.start + (place + 1) * shape.interval
        done = step / shape.total
        mean = floor + (first - floor) * math.exp(-7 * done)
        loss = max(0.3 * floor, mean * (1 + chance.gauss(0, share)))
        loss = min(loss * {0: peak, 1: 0.4 + 0.6 * peak, 2: 0.8 + 0.2 * peak}.get(place - high, 1.0), first)
        best = min(best, mean * 1.04)
        secs = pace * chance.uniform(0.97, 1.04) * _slower(shape, place)
        slower = secs / pace / (1.9 if _longer(shape, place) else 1.0)  # twice the tokens in a step
        skipped = int("fp16" in shape.traits and place < 3 and not shape.start)
        yield {
            "step": step,
            "loss": loss,
            "vloss": mean * chance.uniform(1.02, 1.08),
            "best": best,
            "near0": chance.gauss(0, 0.004),
            "gnorm": abs(chance.gauss(1.0, 0.3)) * (3 if place < 3 else 1) * (4 if place == high else 1) + 0.05,
            "lr": 3e-4 * min(1.0, step / max(1, 0.02 * shape.total)) * (0.55 + 0.45 * math.cos(math.pi * done)),
            "secs": secs,
            "ms": secs * 1000,
            "rate": 1 / secs,
            "sps": batch / secs,
            "tps": tokens / slower,
            "tflops": 410 / slower * chance.uniform(0.98, 1.02),
            "acc": min(0.97, 0.3 + 0.5 * done + chance.uniform(-0.03, 0.03)),
            "mem": chance.uniform(38.0, 38.4),
            "samples": step * batch,
            "batch": batch,
            "seqlen": 4096 if _longer(shape, place) else 2048,
            "scale": 2.0 ** (19 - min(place, 3)) if "fp16" in shape.traits else 1.0,
            "small": 128.0,
            "skipped": skipped,
            "epoch": 3 * done,
            "whole": int(3 * done * 0.999),
            "one": int(3 * done * 0.999) + 1,
            "percent": int(100 * done),
        }


def _slower(shape: Shape, place: int) -> float:
    """Return the factor on the usual step time here, for harmless reasons."""
    factor = 1.0
    if "slow_start" in shape.traits and place < 2:
        factor *= 12 - 8 * place
    if _longer(shape, place):
        factor *= 1.9
    if "slow_eval" in shape.traits and place % 25 == 24:
        factor *= 2.5
    return factor


def _longer(shape: Shape, place: int) -> bool:
    """Whether the sequences of this record are twice as long as those at the start."""
    return "curriculum" in shape.traits and place >= shape.records // 2


def _places(shape: Shape, chance: random.Random) -> dict[int, list[str]]:
    """Return noise texts by the record that they precede; several records follow each."""
    places: dict[int, list[str]] = {}
    for noise in shape.noises:
        if noise.where in ("middle", "any"):
            places.setdefault(chance.randint(2, shape.records - 5), []).append(noise.text)
    return places


def _said(text: str, values: Values, chance: random.Random, rank: int) -> Iterator[Line]:
    for line in fill(text, values, chance):
        yield rank, values["t"], line


def _opening(shape: Shape, values: Values, chance: random.Random) -> Iterator[Line]:
    """Yield the lines before the first step: noise before the program's output and during its setup."""
    if any(noise.name == "other-users" for noise in shape.noises) or "slurmctld.log" in shape.beside:
        yield from _said("SLURM_JOB_ID=@{job} SLURM_JOB_NAME=@{run} SLURM_NNODES=@{nodes}", values, chance, 0)
    if shape.ending == "max_time":
        yield from _said("stopping rules of the user: max_time=00:04:00:00, then end the run well", values, chance, 0)
    start = [noise for noise in shape.noises if noise.where == "start"]
    cut = chance.randint(0, len(start))
    for noise in start[:cut]:
        yield from _said(noise.text, values, chance, chance.randrange(_speaking(shape)))
    for rank in range(_speaking(shape) if shape.split else 1):
        yield from _said(shape.frame.head, values, chance, rank)
    if shape.start:
        yield from _said(shape.frame.resume, values, chance, 0)
    for noise in start[cut:]:
        yield from _said(noise.text, values, chance, chance.randrange(_speaking(shape)))


def _events(shape: Shape, place: int, values: Values, chance: random.Random) -> Iterator[Line]:
    """Lines that go with a change of the course."""
    if "curriculum" in shape.traits and place == shape.records // 2:
        what = (
            "image size is now 384 (was 256)"
            if shape.frame.curve == "vision"
            else "sequence length is now 4096 (was 2048)"
        )
        yield from _said(f"curriculum: {what}, steps take longer from here on, as planned", values, chance, 0)
    if "halved" in shape.traits and place == shape.records // 3 + 1:
        text = (
            "WARNING: out of memory, micro batch size halved to 2, accumulation doubled to 8, step repeated, going on"
        )
        yield from _said(text, values, chance, 0)


def _speaking(shape: Shape) -> int:
    """Return the number of ranks in the logs: all for a merged log, those of one node if each rank has its file."""
    return min(shape.world, 8) if shape.split else shape.world


def _beats(shape: Shape, place: int, values: Values, chance: random.Random) -> Iterator[Line]:
    """Yield occasional lines of a rank without progress lines, which show that it continues in an unfinished run.

    In a run that ended well the other ranks may be silent: its end tells.
    """
    if not shape.split or shape.frame.every or shape.ending not in ("running", "cut"):
        return
    if place % max(1, shape.records // 10) == 0 or place == shape.records - 1:
        for rank in range(1, _speaking(shape)):
            text = f"@{{t:%Y-%m-%d %H:%M:%S}} loader of rank {rank}: @{{samples}} samples read, queue @{{int:2-8}}, all well"
            yield from _said(text, values, chance, rank)


def _progress(shape: Shape, values: Values, chance: random.Random) -> Iterator[Line]:
    ranks = range(min(shape.world, 4)) if shape.frame.every and (shape.split or shape.prefix in RANKED) else (0,)
    for rank in ranks:
        lines = fill(shape.frame.step, values, chance)
        if shape.frame.bar:
            lines[0] = f"\r{_bar(values)}\r{' ' * 60}\r{lines[0]}"
        for line in lines:
            yield rank, values["t"], line


def _bar(values: Values) -> str:
    full = "█" * (values["percent"] // 10)
    tail = f"[{values['elapsed']}<{values['left']}, {values['secs']:5.2f}s/it]"
    return f"{values['percent']:3d}%|{full:<10}| {values['step']}/{values['total']} {tail}"


def _close(shape: Shape, values: Values, chance: random.Random) -> Iterator[Line]:
    texts = {
        "completed": shape.frame.done,
        "early_stop": shape.frame.early,
        "max_time": shape.frame.limit,
    }
    if shape.ending in texts:
        yield from _said(texts[shape.ending], values, chance, 0)
    for noise in shape.noises:
        if noise.where == "end":
            yield from _said(noise.text, values, chance, chance.randrange(_speaking(shape)))


def _files(shape: Shape, lines: Sequence[Line], chance: random.Random) -> dict[str, str]:
    """Return the log's files: one, or one a rank; now and then what the node or the scheduler wrote beside it."""
    colours = chance.random() < 0.15
    owners: dict[str, list[str]] = {}
    for number, (rank, when, text) in enumerate(lines):
        name = f"rank-{rank}.log" if shape.split else "train.log"
        owners.setdefault(name, []).append(_prefixed(shape.prefix, rank, when, number, _coloured(text, colours)))
    files = {name: "\n".join(texts) + "\n" for name, texts in owners.items()}
    if shape.ending == "cut":
        last = f"rank-{lines[-1][0]}.log" if shape.split else "train.log"
        files[last] = files[last][: -chance.randint(3, 40)]
    if "dmesg.log" in shape.beside:
        files["dmesg.log"] = KERNEL.strip("\n") + "\n"
    if "slurmctld.log" in shape.beside:
        files["slurmctld.log"] = "\n".join(_scheduler(lines[0][1], lines[-1][1], chance)) + "\n"
    return files


def _scheduler(begun: datetime, now: datetime, chance: random.Random) -> list[str]:
    values = {"job": 400321, "node": "gpu-07"}
    return fill(SCHEDULER_START, values | {"t": begun}, chance) + fill(SCHEDULER_END, values | {"t": now}, chance)


def _coloured(text: str, colours: bool) -> str:
    return _COLOURED.sub(lambda match: f"\x1b[{_COLOURS[match[0]]}m{match[0]}\x1b[0m", text) if colours else text


def _prefixed(style: str, rank: int, when: datetime, number: int, text: str) -> str:
    """Add the prefix of a launcher, a container or a notebook to a line."""
    before = {
        "none": "",
        "torchrun": f"[rank{rank}]:",
        "srun": f"{rank}: ",
        "default": f"[default{rank % 8}]:",
        "pod": f"[pod/llm-train-worker-{rank}/pytorch] ",
        "cri": f"{when:%Y-%m-%dT%H:%M:%S}.{number % 1000:03d}000000Z stdout F ",
        "kaggle": f"{(when.hour * 3600 + when.minute * 60 + when.second):.1f}s\t{number}\t",
        "journal": f"{when:%b %d %H:%M:%S} gpu-07 train[3121]: ",
    }
    return before[style] + text


def write(made: Made, folder: Path) -> Path:
    """Write a log to disk; return the path of its file, or of its folder if there are several.

    Raises:
        OSError: it cannot be written.
    """
    if list(made.files) == ["train.log"]:
        path = folder / f"{made.name}.log"
        path.write_text(made.files["train.log"], "utf-8", newline="")
        return path
    path = folder / made.name
    path.mkdir(parents=True, exist_ok=True)
    for name, text in made.files.items():
        (path / name).write_text(text, "utf-8", newline="")
    return path


_known: Knowledge | None = None


def _start(known: Knowledge) -> None:
    global _known  # noqa: PLW0603 - a worker process has one, made once
    _known = known


def _judge(task: tuple[str, tuple[str, ...], Path]) -> Outcome:
    name, kinds, path = task
    if _known is None:
        raise RuntimeError("the worker was not started by outcomes")
    try:
        report = diagnose_paths(_known, [path], workers=1).report
    except (SignalboxError, OSError) as error:
        return Outcome(name, kinds, "unreadable", (), (), (str(error),), alarm=True)
    said = judge(LabelledCase(name, "healthy", (), (), ()), report)
    faults = tuple(diagnosis.fault for diagnosis in report.diagnoses[:3])
    return Outcome(name, kinds, said.verdict, faults, said.rules, said.quoted, bool(said.false_alarm))


def outcomes(known: Knowledge, tasks: Sequence[tuple[str, tuple[str, ...], Path]]) -> list[Outcome]:
    """Diagnose logs (name, kinds, path), each by itself, in their order."""
    if not tasks:
        return []
    with worker_pool(min(len(os.sched_getaffinity(0)), len(tasks)), _start, known) as pool:
        return list(pool.map(_judge, tasks, chunksize=4))


def by_kind(said: Sequence[Outcome]) -> list[tuple[str, int, int]]:
    """(kind, alarms, logs) of all kinds that raised one, the highest share first."""
    logs = Counter(kind for outcome in said for kind in outcome.kinds)
    alarms = Counter(kind for outcome in said if outcome.alarm for kind in outcome.kinds)
    rows = [(kind, count, logs[kind]) for kind, count in alarms.items()]
    return sorted(rows, key=lambda row: (-row[1] / row[2], -row[1], row[0]))


def render(title: str, said: Sequence[Outcome], *, verbose: bool) -> str:
    """Return the figures and the alarms for people."""
    alarms = [outcome for outcome in said if outcome.alarm]
    lines = [f"{title}: {len(alarms)} of {len(said)} got fault or no_match (asked: at most {ASKED})"]
    for alarm in alarms:
        lines.append(f"  {alarm.name}: {alarm.verdict} {', '.join(alarm.faults)} ({', '.join(alarm.rules)})")
        lines += [f"      | {' '.join(text.split())[:300]}" for text in alarm.quoted] if verbose else []
    if alarms:
        lines.append("  by kind:" if verbose else "  by kind, two alarms or more:")
        rows = [row for row in by_kind(said) if verbose or row[1] > 1]
        lines += [f"    {count:3d} of {total:3d}  {kind}" for kind, count, total in rows]
    return "\n".join(lines)


def _made_tasks(count: int, seed: int, folder: Path) -> list[tuple[str, tuple[str, ...], Path]]:
    folder.mkdir(parents=True, exist_ok=True)
    logs = (make(seed, number) for number in range(count))
    return [(made.name, made.kinds, write(made, folder)) for made in logs]


def _kept_tasks(folders: Sequence[Path]) -> list[tuple[str, tuple[str, ...], Path]]:
    paths = [path for folder in folders for path in sorted(folder.rglob("*.log")) if path.is_file()]
    return [(str(path), (f"folder {path.parent}",), path) for path in paths]


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, metavar="DIR")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    missing = [folder for folder in options.folders if not folder.is_dir()]
    if missing:
        parser.error(f"{missing[0]} is not a folder")
    known = knowledge()
    with contextlib.ExitStack() as stack:
        folder = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        made = outcomes(known, _made_tasks(options.count, options.seed, folder))
    kept = outcomes(known, _kept_tasks(options.folders))
    if options.json:
        print(json.dumps({"seed": options.seed, "made": _plain(made), "kept": _plain(kept)}, indent=1))
        return 0
    print(render(f"healthy logs made with seed {options.seed}", made, verbose=options.verbose))
    if options.folders:
        print(render("\nhealthy logs found", kept, verbose=options.verbose))
    return 0


def _plain(said: Sequence[Outcome]) -> dict[str, Any]:
    alarms = sum(outcome.alarm for outcome in said)
    return {
        "logs": len(said),
        "alarms": alarms,
        "by_kind": by_kind(said),
        "outcomes": [asdict(outcome) for outcome in said],
    }


if __name__ == "__main__":
    raise SystemExit(main())
