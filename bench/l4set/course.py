"""When things happen in a run, and what its ranks and nodes say as long as all is well.

A run is a list of segments in time: boot, load, steps with evaluations and checkpoints between them, end. Lines are made
segment by segment and node by node, so that a stream of any length needs little memory.
"""

# ruff: noqa: PLR0917 - what is said has a place, a time, a voice and words, always in this order

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp
from random import Random
from typing import Any

from bench.l4set.jobs import Job, Node
from bench.l4set.styles import Say
from bench.l4set.words import (
    agent_line,
    american,
    cann_line,
    elastic_line,
    fill,
    glog_line,
    kernel_line,
    logged,
    millis,
    nccl_line,
    plain,
)

NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a run: boot, load, step, eval, save or end; `record` is the step record it belongs to (0 before the first)."""

    kind: str
    record: int
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Text:
    """Something said at a time: physical lines, each with its mark ("", "block", "cascade" or the number of an event).

    `rank` is the speaking rank, None for a node's own programs; `kernel` that the kernel speaks.
    """

    at: float
    rank: int | None
    lines: tuple[tuple[str, str], ...]
    kernel: bool = False


@dataclass(frozen=True)
class Course:
    """The timing of a run and the numbers that its steps print, by record."""

    segments: tuple[Segment, ...]
    loss: Sequence[float]
    norm: Sequence[float]
    seconds: Sequence[float]

    def of(self, kind: str) -> list[Segment]:
        """All segments of a kind."""
        return [segment for segment in self.segments if segment.kind == kind]


def make_course(job: Job, turn: int | None = None, slow: float = 1.0, loss: str = "") -> Course:
    """The course of a job; from record `turn` on its steps take `slow` times as long, and its loss goes as `loss` says."""
    chance = Random(f"{job.seed}/course")
    at = job.start
    boot = chance.uniform(25, 200) + 2.0 * len(job.nodes)
    load = chance.uniform(30, 300)
    segments = [Segment("boot", 0, at, at + boot), Segment("load", 0, at + boot, at + boot + load)]
    at += boot + load
    records = job.length // job.log_every
    curve, norms, seconds = [0.0], [0.0], [0.0]
    floor, height, noisy = chance.uniform(1.2, 2.2), chance.uniform(0.5, 8), chance.uniform(0.01, 0.08)
    uneven = chance.choice((0.01, 0.02, 0.05, 0.15, 0.3))  # changing sequence lengths
    for record in range(1, records + 1):
        turned = turn is not None and record >= turn
        spent = job.step_seconds * job.log_every * (1 + abs(chance.gauss(0, uneven))) * (slow if turned else 1.0)
        if record <= 2 and chance.random() < 0.8:
            spent *= chance.uniform(2, 9)  # compilation, first touch
        if chance.random() < 0.01:
            spent *= chance.uniform(1.3, 3)  # garbage collection, a hiccup
        segments.append(Segment("step", record, at, at + spent))
        at += spent
        value = floor + height * exp(-record / (0.3 * records + 5)) + chance.gauss(0, noisy)
        norm = abs(chance.gauss(0.6, 0.2)) + 0.08
        if chance.random() < 0.01:
            norm *= chance.uniform(3, 9)
        if turned and loss == "spike":
            value += 5.5 * exp(-(record - (turn or 0)) / 60)
            norm *= 12
        if turned and loss == "nan":
            value, norm = (float("nan"), float("nan")) if chance.random() < 0.7 else (value, norm)
        curve.append(max(0.05, value) if value == value else value)  # noqa: PLR0124 - nan stays
        norms.append(norm)
        seconds.append(spent / job.log_every)
        for kind, every, least, most in (("eval", job.eval_every, 8, 90), ("save", job.save_every, 12, 120)):
            if every and (record * job.log_every) % every < job.log_every and record * job.log_every >= every:
                spent = chance.uniform(least, most)
                segments.append(Segment(kind, record, at, at + spent))
                at += spent
    segments.append(Segment("end", records, at, at + chance.uniform(3, 20)))
    return Course(tuple(segments), curve, norms, seconds)


def speakers(job: Job, node: Node, who: str) -> tuple[int, ...]:
    """Ranks of a node that a role of styles.Say holds."""
    ranks, last = node.ranks, job.world - 1
    if who == "each":
        return ranks
    if who == "local0":
        return ranks[:1]
    if who == "first":
        return (0,) if node.index == 0 else ()
    if who == "last":
        last = last if job.pp > 1 else job.world - job.tp
        return (last,) if last in ranks else ()
    if who == "tp0":
        return ranks[:: job.tp]
    raise ValueError(who)


def place_values(job: Job, node: Node, rank: int) -> dict[str, Any]:
    """What templates may name of a rank."""
    local = rank - node.ranks[0]
    stage_size = max(1, job.world // job.pp)
    return {
        "rank": rank, "local": local, "host": node.host, "ip": node.ip, "node": node.index, "pid": node.pids[local],
        "busid": f"{(0x18 + 0x1D * local) % 256:02x}", "next": (rank + job.per_node) % job.world,
        "nextlocal": local, "stage": rank // stage_size, "dprank": (rank % stage_size) // job.tp, "rankplus": rank + 1,
        "nodesless": max(1, len(job.nodes) - 1), "firstplus": job.first_step + 1,
    }  # fmt: skip


class Voice:
    """Puts what is said into the lines of a job's logs."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.values = job.values

    def say(self, node: Node, rank: int, channel: str, level: str, place: str, text: str, at: float) -> list[str]:
        """The lines of one thing said by a rank, or by its node's agent, launcher or kernel."""
        job, local = self.job, at + node.skew
        who = {"host": node.host, "rank": rank, "local": rank - node.ranks[0], "pid": node.pids[rank - node.ranks[0]]}
        match channel:
            case "agent":
                return [agent_line(job.agent_form, level, local, node.zone, node.host, text)]
            case "kernel":
                return [kernel_line(job.kernel_form, local, node.zone, node.host, node.boot, text)]
            case "elastic":
                return elastic_line(level, local, node.zone, node.pids[0] - 1, place, text).split("\n")
            case "node":
                return text.split("\n")
            case "log":
                line = logged(job.style.form, level, local, node.zone, who, place, text)
            case "nccl":
                line = nccl_line(level, local, node.zone, who, place, text)
            case "glog":
                return [glog_line(level, local, node.zone, rank, place, text)]
            case "cann":
                line = cann_line(level, local, node.zone, who, place, text)
            case "warn":
                file, number = place.rsplit(":", 1)
                line = f"{job.values['site']}/{file}:{number}: {text}\n  warnings.warn("
            case _:
                line = text
        return self._wrapped(line, rank, node)

    def _wrapped(self, line: str, rank: int, node: Node) -> list[str]:
        prefix = (
            self.job.prefix.format(rank=rank, local=rank - node.ranks[0], host=node.host) if self.job.prefix else ""
        )
        wrap = self.job.wrap
        lines = line.split("\n")
        if wrap:
            lines = [part for one in lines for part in ([one[i : i + wrap] for i in range(0, len(one), wrap)] or [""])]
        return [prefix + one for one in lines] if prefix else lines


def bar(job: Job, record: int, chance: Random) -> str:
    """Updates of a progress bar that stand before what is printed next."""
    total, done = job.length, record * job.log_every
    parts = []
    for _ in range(chance.randint(1, 3)):
        share = 100 * done // total
        parts.append(
            f"\r {share:2d}%|{'█' * (share // 10):<10}| {done}/{total} [{done // 60:02d}:{done % 60:02d}<{(total - done) // 60:02d}:11, {job.step_seconds:5.2f}s/it]"
        )
    return "".join(parts)


class Routine:
    """What a node says in each segment of a course while all is well.

    `stops`: when ranks fall silent; `late`: ranks (other than those) that still end the segment in which the run stopped;
    `heavy`: how much more the compute time of a rank is from record `turn` on; `marked`: the event of the turned step lines.
    """

    def __init__(self, job: Job, course: Course, *, stops: Mapping[int, float], turn: int | None = None,
                 heavy: Mapping[int, float] | None = None, marked: str = "", symptom: bool = False) -> None:  # fmt: skip
        self.job, self.course, self.stops = job, course, stops
        self.turn, self.heavy, self.marked, self.symptom = turn, heavy or {}, marked, symptom
        self.voice = Voice(job)
        self.records = max(1, job.length // job.log_every)

    def of(self, node: Node, segment: Segment, chance: Random) -> Iterator[Text]:
        """The texts of one segment."""
        style = self.job.style
        match segment.kind:
            case "boot":
                yield from self._items(style.boot, node, segment, chance)
            case "load":
                yield from self._items(style.load, node, segment, chance)
            case "step":
                yield from self._steps(node, segment, chance)
            case "eval":
                yield from self._items(style.evaluation, node, segment, chance)
            case "save":
                yield from self._items(style.saving, node, segment, chance)
            case _:
                yield from self._items(style.end, node, segment, chance)

    def _items(self, items: Sequence[Say], node: Node, segment: Segment, chance: Random) -> Iterator[Text]:
        job, span = self.job, segment.end - segment.begin
        step = job.first_step + segment.record * job.log_every
        extra = {
            "step": step,
            "vloss": f"{self.course.loss[segment.record] + 0.05:.4f}",
            "epoch": f"{segment.record / self.records:.2f}",
        }
        spoken = [item for item in items if job.verbose or not item.verbose]
        for number, item in enumerate(spoken):
            base = segment.begin + span * (number + 0.3) / (len(spoken) + 0.5)
            for rank in speakers(job, node, item.who):
                at = base + chance.uniform(0, 0.6 * span / (len(spoken) + 1))
                if at >= self.stops.get(rank, NEVER):
                    continue
                values = self._values(node, rank, at) | extra
                place = fill(item.module, values, chance) if "@" in item.module else item.module
                lines = self.voice.say(node, rank, item.channel, item.level, place, fill(item.text, values, chance), at)
                yield Text(at, rank, tuple((line, "") for line in lines))

    def _values(self, node: Node, rank: int, at: float) -> dict[str, Any]:
        stamps = {"plain": plain(at + node.skew, node.zone), "accented": american(at + node.skew, node.zone)}
        return self.job.values | place_values(self.job, node, rank) | stamps

    def _steps(self, node: Node, segment: Segment, chance: Random) -> Iterator[Text]:
        job, record = self.job, segment.record
        shared: dict[str, Any] = {}
        for number, item in enumerate(job.style.steps):
            if record % item.every not in {0, 2 if item.every > 30 else 0} or (item.verbose and not job.verbose):
                continue
            for rank in speakers(job, node, item.who):
                at = segment.end - chance.uniform(0.0, 0.02) + 0.02 * number
                if at >= self.stops.get(rank, NEVER):
                    continue
                shared = shared or self._numbers(record, chance)
                mine = shared["ms"] * chance.uniform(0.80, 0.92)
                turned = self.turn is not None and record >= self.turn
                mine = (
                    shared["ms"] * chance.uniform(0.93, 0.99)
                    if turned and rank in self.heavy
                    else mine / (1.9 if turned and self.heavy else 1)
                )
                local = rank - node.ranks[0]
                text = item.text.format(**shared, rank=rank, local=local, node=node.index, mine=mine, pid=node.pids[local],
                                        stamp=millis(at + node.skew, node.zone, "."))  # fmt: skip
                mark = ""
                if turned and number == 0 and self.marked and record < (self.turn or 0) + 3:
                    mark = self.marked
                elif turned and self.symptom and (rank in self.heavy or number == 0):
                    mark = "block"
                lines = self.voice.say(node, rank, item.channel, item.level, item.module, text, at)
                yield Text(
                    at, rank, tuple((line, mark if not i or not mark else "block") for i, line in enumerate(lines))
                )

    def _numbers(self, record: int, chance: Random) -> dict[str, Any]:
        job, course = self.job, self.course
        step, seconds = job.first_step + record * job.log_every, course.seconds[record]
        ms, usual = 1000 * seconds, job.step_seconds
        batch = job.values["batch"]
        memory = 48 + 6 * (len(job.name) % 4) + chance.uniform(-0.4, 0.4)
        bad = course.loss[record] != course.loss[record]
        return {
            "step": step, "total": job.values["total"], "samples": step * batch, "ms": ms, "sec": seconds,
            "tflops": 410 * usual / seconds, "lr": 3e-4 * (1 - 0.9 * record / self.records), "batch": batch,
            "loss": course.loss[record], "gnorm": course.norm[record], "scale": 1.0, "skipped": int(bad), "nan": int(bad),
            "mem": 1024 * memory, "maxmem": 1024 * memory + 4096, "reserved": 1024 * memory + 6144, "data": chance.uniform(0.8, 30),
            "opt": chance.uniform(20, 90), "opt2": chance.uniform(90, 140), "low": 0.8 * ms, "high": 0.93 * ms, "skippedsum": 0,
            "micro": step * 4, "avgsps": batch / usual, "sps": batch / seconds, "memgb": memory, "maxgb": memory + 4,
            "fwd": 0.3 * ms, "bwd": 0.55 * ms, "bar": bar(job, record, chance) if job.progress_bar else "",
            "epoch": record / self.records, "tok": int(4096 * batch / seconds / 10), "seqlen": chance.randint(1024, 8192),
            "mempct": memory / 0.8, "tps": f"{int(9000 * usual / seconds):,}", "mfu": 41 * usual / seconds,
            "depth": chance.randint(9, 32), "shard": chance.randint(0, 99999), "task": chance.randint(0, 65535),
        }  # fmt: skip
