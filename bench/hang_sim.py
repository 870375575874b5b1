"""Simulated jobs for bench/hang.py: logs, stacks, metrics and recorders of a training job at any time.

Three worlds of them. FIRST was written before the probes were measured with it; since then four flaws were fixed: a job
does not live through a wait that is longer than its own collectives' timeout; an evaluation may be at one line in every
sample, as steps are; the stack of a rank that writes a checkpoint includes the saving function; and dumps have their
newest timestamp, as the reader returns it. SECOND was drawn after the probes were fixed, with other ranges; its false
calls were then analyzed and fixed, too. THIRD is wider than both, was drawn after that, and was not inspected before
the figures were taken. A wait for data of more than four minutes, or a retry of more than one, is a hang in all of
them. The difficulties are intentional: a main thread in the same device wait in nearly every sample, evaluation and
checkpoints by one rank while the others wait in a barrier, phases without a log line, one rank that logs, log lines
without times, storage that stalls a loader for minutes and heals, transport retries, compilation, metrics that are
late, lost or not collected, recorders that are off. Times are seconds since the job's start, moved to the epoch by BASE
where values carry them.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from kb.collectives.trace import Ring, digest
from kb.facts.evidence import Evidence
from kb.metrics.panel import Panel, Row, make_panel
from kb.model import (
    Collective,
    CollectiveTrace,
    Frame,
    Job,
    ProgressPoint,
    Resource,
    StackSample,
    Stage,
    StreamRef,
    ThreadStack,
)
from kb.parsers.nccl_ras.values import RasCommunicator, RasRank, RasReport
from kb.scanning.summary import Series, StageMark, StreamSummary

BASE = 1_800_000_000.0
LOOK = 20.0  # seconds between two samples of `watch`
KINDS = (
    *("asleep", "lock", "loader", "skip", "sizes", "stopped", "network", "gpu", "node_lost", "busy", "chatter"),
    *("saving", "evaluating", "start"),
)
_SITE = "/opt/venv/lib/python3.11/site-packages"
_MAIN = (Frame("main", "/srv/lm/train.py", 210), Frame("<module>", "/srv/lm/train.py", 240))
_STEP = (Frame("train_step", "/srv/lm/train.py", 120), *_MAIN)
_SYNC = (Frame("train_step", "/srv/lm/train.py", 131), *_MAIN)
_REDUCE = (Frame("all_reduce", f"{_SITE}/torch/distributed/distributed_c10d.py", 2806), *_STEP)
_GATHER = (Frame("all_gather", f"{_SITE}/torch/distributed/distributed_c10d.py", 3711), *_STEP)
_BARRIER = (Frame("barrier", f"{_SITE}/torch/distributed/distributed_c10d.py", 4551), *_MAIN)
_LOADER = (
    Frame("wait", "/usr/lib/python3.11/threading.py", 327),
    Frame("get", "/usr/lib/python3.11/queue.py", 180),
    Frame("_try_get_data", f"{_SITE}/torch/utils/data/dataloader.py", 1243),
    *_MAIN,
)
_SLEEP = (Frame("hold", "/srv/lm/hooks.py", 18), *_STEP)
_LOCK = (Frame("acquire_cache", "/srv/lm/cache.py", 77), *_STEP)
_SAVE = (
    Frame("save", f"{_SITE}/torch/serialization.py", 943),
    Frame("save_checkpoint", "/srv/lm/ckpt.py", 61),
    *_MAIN,
)
_MEET = (Frame("init_process_group", f"{_SITE}/torch/distributed/distributed_c10d.py", 1714), *_MAIN)


@dataclass(frozen=True, slots=True)
class Span:
    """A phase of the job. `alone`: one rank (`who`) does it, the others wait in a barrier or collective."""

    begin: float
    end: float
    kind: str
    alone: bool = False
    who: int = 0


@dataclass(frozen=True, slots=True)
class World:
    """The ranges that jobs are drawn from: seconds, but for `log_every` (steps), `jitter` and the shares of jobs.

    `evaluate_steps`: evaluation comes each so many steps, else by time. `ships`: how late lines arrive; `buffered`:
    jobs whose lines come a block at a time; `slow_ranks`: jobs with a straggler that comes and goes; `saves_aside`:
    jobs whose checkpoints are written in the background, so that they block for a moment only.
    """

    name: str = "first"
    step: tuple[float, float] = (0.4, 45.0)
    log_every: tuple[int, ...] = (1, 1, 1, 5, 10, 10, 50)
    evaluates: tuple[float, float] = (15.0, 900.0)
    evaluate_steps: tuple[float, float] | None = None
    saves: tuple[float, float] = (3.0, 300.0)
    stall: tuple[float, float] = (10.0, 180.0)
    retry: tuple[float, float] = (5.0, 60.0)
    jitter: tuple[float, float] = (0.05, 0.05)
    ranks: tuple[int, ...] = (4, 8)
    ships: float = 0.0
    buffered: float = 0.0
    slow_ranks: float = 0.0
    saves_aside: float = 0.0


FIRST = World()
SECOND = World(
    "second",
    step=(0.5, 120.0),
    log_every=(1, 1, 2, 5, 10, 20, 100),
    evaluates=(10.0, 1200.0),
    evaluate_steps=(100.0, 5000.0),
    saves=(10.0, 600.0),
    jitter=(0.01, 0.15),
    ranks=(4, 8, 16),
    ships=30.0,
    buffered=0.1,
    slow_ranks=0.3,
    saves_aside=0.3,
)
THIRD = World(
    "third",
    step=(0.2, 200.0),
    log_every=(1, 2, 5, 10, 20, 50, 200, 500),
    evaluates=(5.0, 1500.0),
    evaluate_steps=(50.0, 10_000.0),
    saves=(5.0, 900.0),
    stall=(5.0, 240.0),
    retry=(2.0, 60.0),
    jitter=(0.005, 0.2),
    ranks=(2, 4, 8, 12, 16),
    ships=60.0,
    buffered=0.2,
    slow_ranks=0.4,
    saves_aside=0.3,
)


@dataclass(slots=True)
class Made:
    """One simulated job. `hang`: its kind, rank and start (also the last progress)."""

    seed: int
    ranks: int
    step: float
    log_every: int
    all_log: bool
    timed: bool
    heartbeat: bool
    sync_share: float
    stacks: bool
    metrics: bool
    sm: bool
    recorder: str
    timeout: float
    told: frozenset[str]
    jitter: float = 0.05
    ships: float = 0.0
    block: int = 1  # lines that arrive together
    slow: list[tuple[float, float, float, int]] = field(default_factory=list)  # begin, end, factor, rank
    spans: list[Span] = field(default_factory=list)
    begins: list[float] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)  # when each step ended
    points: list[ProgressPoint] = field(default_factory=list)
    marks: list[tuple[float, StageMark]] = field(default_factory=list)
    lines: list[float] = field(default_factory=list)  # times of all lines of rank 0
    end: float = 0.0
    hang: str | None = None
    culprit: int = 0
    since: float = math.inf
    panels: dict[str, NDArray[np.float64]] = field(default_factory=dict)

    def at(self, when: float) -> Span:
        """Return the phase at a time."""
        return self.spans[max(0, bisect_right(self.begins, when) - 1)]

    def straggler(self, when: float) -> tuple[float, int] | None:
        """Return the slow rank at a time, and its factor."""
        return next(((factor, rank) for begin, end, factor, rank in self.slow if begin <= when < end), None)

    def ordinary(self, when: float) -> bool:
        """Whether nothing but short steps filled the last three minutes."""
        one = self.at(when)
        calm = one.kind == "steps" and one.begin < when - 180 and self.step < 15 and self.block == 1
        return calm and self.straggler(when) is None and when < self.since


def made_job(seed: int, hang: str | None = None, hours: float = 2.0, world: World = FIRST) -> Made:
    """One job; the same seed gives the same job. With `hang`, progress stops at a third of its time or later."""
    chance = random.Random(f"job {seed}" if world == FIRST else f"{world.name} {seed}")
    step = _spread(chance, world.step)
    job = Made(
        seed,
        ranks=chance.choice(world.ranks),
        step=step,
        log_every=chance.choice(world.log_every) if step < 5 else chance.choice((1, 1, 1, 5)),
        all_log=chance.random() < 0.4,
        timed=chance.random() < 0.93,
        heartbeat=hang == "chatter" or chance.random() < 0.08,
        sync_share=chance.choice((0.2, 0.4, 0.6, 0.8, 0.95)),
        stacks=chance.random() < 0.85,
        metrics=chance.random() < 0.7,
        sm=chance.random() < 0.7,
        recorder=chance.choice(("none", "none", "ras", "fr", "fr")),
        timeout=chance.choice((600.0, 600.0, 1800.0, 3600.0)),
        told=frozenset(
            item
            for item, share in (("start", 0.8), ("evaluating", 0.75), ("saving", 0.9), ("loading", 0.7))
            if chance.random() < share
        ),
    )
    job.end = hours * 3600
    if hang is not None:
        job.hang, job.culprit = hang, chance.randrange(1, job.ranks)
    apart = random.Random(f"{world.name} besides {seed}")
    job.jitter = apart.uniform(*world.jitter)
    job.ships = apart.uniform(0.0, world.ships)
    job.block = apart.randrange(10, 80) if apart.random() < world.buffered else 1
    aside = apart.random() < world.saves_aside
    if apart.random() < world.slow_ranks:
        job.slow = _stragglers(job, apart)
    _live(job, chance, replace(world, saves=(1.0, 5.0)) if aside else world)
    _log(job, chance)
    if job.metrics:
        _measure(job)
    return job


def _spread(chance: random.Random, ends: tuple[float, float]) -> float:
    """Return a log-uniform random number between two."""
    return math.exp(chance.uniform(math.log(ends[0]), math.log(ends[1])))


def _stragglers(job: Made, chance: random.Random) -> list[tuple[float, float, float, int]]:
    """Return periods of some minutes in which one rank is slow."""
    found, now = [], chance.expovariate(1 / 1800)
    while now < job.end:
        lasts = chance.uniform(60, 900)
        found.append((now, now + lasts, chance.uniform(1.2, 2.5), chance.randrange(job.ranks)))
        now += lasts + chance.expovariate(1 / 1800)
    return found


def _live(job: Made, chance: random.Random, world: World) -> None:
    """Lay out the stretches, up to the end or the hang."""
    now = _start(job, chance)
    evaluates, eval_every = chance.random() < 0.7, chance.uniform(600, 3600)
    eval_lasts, eval_alone = _spread(chance, world.evaluates), chance.random() < 0.2
    if world.evaluate_steps is not None:
        eval_every = max(120.0, eval_lasts, job.step * _spread(chance, world.evaluate_steps))
    save_every = chance.uniform(600, 3600)
    save_lasts, save_alone = _spread(chance, world.saves), chance.random() < 0.5
    _allow(job, max(eval_lasts * eval_alone * evaluates, save_lasts * save_alone))
    stalls = 0.6 if chance.random() < 0.15 else 0.03  # of the loader, an hour
    wished = chance.uniform(0.35, 0.8) * job.end if job.hang != "start" else now
    due = {"evaluating": now + eval_every, "saving": now + save_every, "stall": 0.0, "retry": 0.0}
    due["stall"] = now + chance.expovariate(stalls / 3600)
    due["retry"] = now + chance.expovariate(0.2 / 3600)
    if not evaluates and job.hang != "evaluating":
        due["evaluating"] = math.inf
    while now < job.end:
        kind = min(due, key=lambda name: due[name])
        upto = min(due[kind], job.end)
        if job.hang is not None and job.hang not in ("saving", "evaluating") and upto >= wished:
            _stop(job, _steps(job, now, max(now + job.step, wished), chance))
            return
        now = _steps(job, now, upto, chance)
        if now >= job.end:
            return
        if kind == job.hang and now >= wished:
            job.spans.append(Span(now, now + 20.0, kind, eval_alone if kind == "evaluating" else save_alone))
            _stop(job, now + 20.0)
            return
        jitter = chance.uniform(0.85, 1.25)
        if kind == "evaluating":
            span = Span(now, now + eval_lasts * jitter, kind, eval_alone)
            due[kind] = span.end + eval_every
        elif kind == "saving":
            slow = chance.uniform(2, 5) if chance.random() < 0.03 else 1.0
            lasts = save_lasts * jitter * slow
            span = Span(now, now + (min(lasts, 0.9 * job.timeout) if save_alone else lasts), kind, save_alone)
            due[kind] = span.end + save_every
        elif kind == "stall":
            lasts = _spread(chance, world.stall)
            span = Span(now, now + lasts, "stall", chance.random() < 0.5, chance.randrange(job.ranks))
            due[kind] = span.end + chance.expovariate(stalls / 3600)
        else:
            span = Span(now, now + chance.uniform(*world.retry), "retry")
            due[kind] = span.end + chance.expovariate(0.2 / 3600)
        job.spans.append(span)
        now = span.end


def _allow(job: Made, longest: float) -> None:
    """Raise the timeout above the longest wait for one rank; a shorter one would end a healthy job."""
    while job.timeout < 1.5 * longest:
        job.timeout = {600.0: 1800.0}.get(job.timeout, 2 * job.timeout)


def _start(job: Made, chance: random.Random) -> float:
    """Add the start: rendezvous, reading data, perhaps a checkpoint, perhaps compilation."""
    now = 0.0
    parts = [("meeting", chance.uniform(20, 240)), ("building", chance.uniform(10, 90))]
    if job.hang == "start":
        job.spans.append(Span(0.0, parts[0][1], "meeting"))
        return parts[0][1]
    parts.append(("loading", math.exp(chance.uniform(math.log(10), math.log(600)))))
    if chance.random() < 0.3:
        parts.append(("restoring", math.exp(chance.uniform(math.log(20), math.log(500)))))
    if chance.random() < 0.4:
        parts.append(("compiling", math.exp(chance.uniform(math.log(30), math.log(700)))))
    for kind, lasts in parts:
        job.spans.append(Span(now, now + lasts, kind))
        now += lasts
    return now


def _steps(job: Made, now: float, upto: float, chance: random.Random) -> float:
    """Fill with steps; return the end of the last one."""
    begin = now
    while now < upto:
        odd = chance.uniform(1.5, 3.0) if chance.random() < 0.003 else 1.0
        late = job.straggler(now)
        now += job.step * odd * max(0.7, chance.gauss(1.0, job.jitter)) * (late[0] if late else 1.0)
        job.steps.append(now)
    if now > begin:
        job.spans.append(Span(begin, now, "steps"))
    return now


def _stop(job: Made, when: float) -> None:
    """Stop all progress; watched for the length of the timeout, at most 45 minutes."""
    job.since = when
    job.end = when + min(2700.0, job.timeout if job.hang not in ("start", "saving", "evaluating") else 2700.0)
    job.spans.append(Span(when, job.end, "hang"))


_STAGE: dict[str, tuple[str, Stage]] = {
    "meeting": ("start", "init"),
    "loading": ("loading", "data_load"),
    "restoring": ("loading", "checkpoint_load"),
    "evaluating": ("evaluating", "evaluating"),
    "saving": ("saving", "saving"),
}


def _log(job: Made, chance: random.Random) -> None:
    """Return the lines of rank 0: one every few steps, one at the start of each logged phase, perhaps a heartbeat."""
    job.begins = [span.begin for span in job.spans]
    said: list[tuple[float, str, int]] = [
        (when, "step", number) for number, when in enumerate(job.steps, 1) if number % job.log_every == 0
    ]
    said += [
        (span.begin, span.kind, 0) for span in job.spans if span.kind in _STAGE and _STAGE[span.kind][0] in job.told
    ]
    if job.heartbeat:
        said += [(60.0 * at, "beat", 0) for at in range(int(job.end // 60))]
    offset = 0
    for when, kind, number in sorted(said, key=lambda item: (item[0], item[1] != "step")):  # a step's line comes first
        offset += chance.randrange(60, 200)
        time = BASE + when if job.timed else None
        job.lines.append(when)
        if kind == "step":
            job.points.append(ProgressPoint(offset, number, 10**6, time, 2.5, rank=0))
        elif kind != "beat":
            job.marks.append((when, StageMark(offset, _STAGE[kind][1])))


# -- the evidence at a time --------------------------------------------------------------------------------------------


def evidence(job: Made, now: float) -> Evidence:
    """Return logs and description at a time."""
    lines = bisect_right(job.lines, now - job.ships) // job.block * job.block  # those that have arrived
    upto = job.lines[lines - 1] if lines else -1.0
    marks = tuple(mark for when, mark in job.marks if when <= upto)
    count = bisect_right(job.steps[job.log_every - 1 :: job.log_every], upto)
    points = tuple(job.points[:count])
    first, last = (points[0], points[-1]) if points else (None, None)
    series = Series(points, len(points), 0, first, last)
    at = BASE + job.lines[lines - 1] if lines and job.timed else None
    begun = BASE + job.lines[0] if lines and job.timed else None
    streams = [
        StreamSummary(
            StreamRef("logs/rank-0.log", Resource(rank=0)),
            max((point.offset for point in points[-1:]), default=0) + 4096,
            series=series,
            marks=marks,
            first_time=begun,
            last_time=at,
        )
    ]
    if job.all_log:
        streams += [
            StreamSummary(StreamRef(f"logs/rank-{rank}.log", Resource(rank=rank)), 4096, first_time=begun, last_time=at)
            for rank in range(1, job.ranks)
        ]
    described = Job(id=str(job.seed), world_size=job.ranks, collected_at=BASE + now, start=BASE)
    return Evidence(described, streams=tuple(streams))


def _place(  # noqa: PLR0911 - a place for each kind of stretch
    job: Made, span: Span, rank: int, when: float, chance: random.Random
) -> tuple[Frame, ...] | None:
    """Return the place of a rank's main thread; None if its process cannot be sampled."""
    if span.kind == "hang":
        return _hung(job, rank, chance)
    if span.alone and rank != span.who:
        return _BARRIER if span.kind != "stall" else _REDUCE
    if span.kind == "meeting":
        return _MEET
    if span.kind == "stall":
        return _LOADER
    if span.kind == "retry":
        return _REDUCE
    if span.kind == "saving":
        return (
            _SAVE
            if chance.random() < 0.8
            else (Frame("write", "/srv/lm/ckpt.py", chance.randrange(70, 90)), *_SAVE[1:])
        )
    if span.kind in ("loading", "restoring") and chance.random() < 0.4:
        return (Frame("read", "/srv/lm/data.py", 33), *_MAIN)
    names = {
        "evaluating": "evaluate",
        "compiling": "trace",
        "building": "build",
        "loading": "index",
        "restoring": "load",
    }
    if span.kind in names:
        waits = span.kind == "evaluating" and chance.random() < job.sync_share
        line = 40 if waits else chance.randrange(20, 90)
        return (
            Frame("forward", "/srv/lm/model.py", line),
            Frame(names[span.kind], "/srv/lm/run.py", line // 8),
            *_MAIN,
        )
    return _stepping(job, rank, when, chance)


def _stepping(job: Made, rank: int, when: float, chance: random.Random) -> tuple[Frame, ...]:
    """Return the place of a rank that takes steps; the others often wait for a straggler."""
    late = job.straggler(when)
    if late is not None and rank != late[1] and chance.random() < 1 - 1 / late[0]:
        return _REDUCE
    if (late is None or rank != late[1]) and chance.random() < job.sync_share:
        return _SYNC
    return (Frame("forward", "/srv/lm/model.py", chance.randrange(20, 300)), *_STEP)


def _hung(job: Made, rank: int, chance: random.Random) -> tuple[Frame, ...] | None:
    mine = rank == job.culprit
    if job.hang == "start":
        return None if mine else _MEET
    if job.hang == "node_lost":
        return None if _away(job, rank) else _SYNC
    if job.hang == "saving":
        return _SAVE if rank == 0 else _BARRIER
    if mine and job.hang == "busy":
        return (Frame("retry_forever", "/srv/lm/hooks.py", chance.randrange(40, 48)), *_STEP)
    if mine and job.hang == "stopped":
        return (Frame("forward", "/srv/lm/model.py", 77), *_STEP)
    own = {"asleep": _SLEEP, "chatter": _SLEEP, "lock": _LOCK, "loader": _LOADER, "skip": _GATHER, "gpu": _SYNC}
    return own.get(job.hang or "", _REDUCE) if mine else _REDUCE


def _away(job: Made, rank: int) -> bool:
    """Whether a rank is on the lost node."""
    half = job.ranks // 2
    return rank // half == job.culprit // half


def stacks(job: Made, now: float) -> list[StackSample]:
    """One round of stacks; single processes cannot be read at times."""
    if not job.stacks:
        return []
    chance = random.Random(f"stacks {job.seed} {now}")
    found = []
    for rank in range(job.ranks):
        when = min(job.end, now + chance.uniform(0, 2))
        place = _place(job, job.at(when), rank, when, chance)
        if place is not None and chance.random() > 0.02:
            threads = (ThreadStack("MainThread", place, "idle" if chance.random() < 0.5 else "active"),)
            who = Resource(rank=rank, pid=5000 + rank)
            found.append(StackSample(f"stacks/{now:.0f}/rank-{rank}.json", who, f"{now:.0f}", BASE + when, threads))
    return found


def _queued(job: Made, now: float, rank: int) -> tuple[int, int, float]:
    """Return, for the job's one group, the last number queued by a rank, the last that ended, and its queue time."""
    done = 4 * bisect_right(job.steps, now)
    span = job.at(now)
    if span.kind == "hang" and job.hang not in ("start", "evaluating"):
        apart = {"asleep", "lock", "loader", "stopped", "busy", "chatter"}
        behind = (rank == job.culprit and job.hang in apart) or (job.hang == "saving" and rank == 0)
        return (done, done, job.since) if behind else (done + 1, done, job.since)
    if span.kind == "steps":
        number = bisect_right(job.steps, now)
        begin = max(span.begin, job.steps[number - 1] if number else 0.0)
        late = job.straggler(now)
        if late is not None and rank == late[1] and now - begin < 0.8 * job.step * late[0]:
            return done, done, begin
        return done + 1, done, begin
    if span.kind == "evaluating" and not span.alone:
        turns = int((now - span.begin) // 5)  # it gathers its metrics at times
        return done + 1, done, span.begin + 5 * turns
    if span.kind == "retry" or (span.alone and rank != span.who):
        return done + 1, done, span.begin
    return done, done, span.begin


def rings(job: Made, now: float) -> tuple[Ring, ...]:
    """Return the digests of each rank's Flight Recorder."""
    if job.recorder != "fr" or not job.steps or now < job.steps[0]:
        return ()
    found = []
    for rank in range(job.ranks):
        if job.hang == "node_lost" and now >= job.since and _away(job, rank):
            continue
        queued, done, when = _queued(job, now, rank)
        entries = tuple(
            Collective(
                "0",
                seq,
                "all_gather"
                if job.hang == "skip" and rank == job.culprit and seq > done and now > job.since
                else "all_reduce",
                "completed" if seq <= done else "started",
                input_sizes=((64 if job.hang == "sizes" and rank == job.culprit and seq > done else 128,),),
                output_sizes=((128,),),
                created=BASE + when - max(0, done - seq) - (seq <= done),
                timeout_ms=1e3 * job.timeout,
                retired=seq <= done,
            )
            for seq in range(max(1, done - 3), queued + 1)
        )
        trace = CollectiveTrace(
            f"flight_recorder/rank-{rank}",
            rank,
            time=max((entry.created for entry in entries if entry.created is not None), default=None),
            backend="nccl",
            groups={"0": tuple(range(job.ranks))},
            group_names={"0": "default_pg"},
            status={"0": (queued, queued, done)},
            entries=entries,
        )
        found.append(digest(trace))
    return tuple(found)


def ras(job: Made, now: float) -> RasReport | None:
    """One answer of NCCL RAS."""
    if job.recorder != "ras" or not job.steps or now < job.steps[0]:
        return None
    ranks = []
    for rank in range(job.ranks):
        gone = job.hang == "node_lost" and now >= job.since and _away(job, rank)
        host = f"node-{rank * 2 // job.ranks}"
        if gone:
            ranks.append(RasRank(rank, host, 5000 + rank, state="missing" if now < job.since + 60 else "dead"))
            continue
        queued, done, _ = _queued(job, now, rank)
        odd = job.hang == "skip" and rank == job.culprit and now > job.since
        counts = (("AllGather", 1), ("AllReduce", done)) if odd else (("AllReduce", queued),)
        ranks.append(RasRank(rank, host, 5000 + rank, counts=counts))
    group = RasCommunicator("a1", job.ranks, tuple(ranks))
    return RasReport(f"ras/{now:.0f}.json", BASE + now, communicators=(group,), communicators_count=1)


SCRAPE = 30.0
_LEVELS = {  # utilisation, SM activity, RDMA bytes/s: of the ranks that work, of those that wait in a collective
    "steps": (96.0, 55.0, 6e9),
    "evaluating": (92.0, 48.0, 3e6),
    "saving": (1.0, 0.3, 2e8),
    "compiling": (3.0, 1.0, 0.0),
    "idle": (0.0, 0.0, 0.0),
    "waits": (100.0, 14.0, 2e3),
}


def _measure(job: Made) -> None:
    """Return the job's metrics, one scrape per 30 s, as ranks x scrapes; lost values are NaN."""
    noise = np.random.default_rng([job.seed, 77])
    columns = int(job.end // SCRAPE) + 1
    pace = noise.uniform(0.5, 1.0), noise.uniform(0.6, 1.4), noise.uniform(0.05, 3.0)
    shape = (job.ranks, columns)
    names = ("gpu_util", "sm_active", "rdma_tx")
    cells = {name: np.zeros(shape) for name in names}
    for column in range(columns):
        when = column * SCRAPE + SCRAPE / 2
        span = job.at(min(when, job.end - 0.1))
        for rank in range(job.ranks):
            level = _LEVELS[_does(job, span, rank)]
            for name, value in zip(names, level, strict=True):
                cells[name][rank, column] = value
            if span.kind == "steps":
                cells["gpu_util"][rank, column] *= 1.0 if pace[0] > 0.6 else 0.85
                cells["sm_active"][rank, column] *= pace[1]
                cells["rdma_tx"][rank, column] *= pace[2]
    for name, share in (("gpu_util", 0.01), ("sm_active", 0.06), ("rdma_tx", 0.08)):
        cells[name] *= 1 + share * noise.standard_normal(shape)
        cells[name][noise.random(shape) < 0.015] = np.nan
        if noise.random() < 0.3:  # an exporter that is away for some minutes
            row, begin = noise.integers(job.ranks), int(noise.integers(columns))
            cells[name][row, begin : begin + 12] = np.nan
    if job.hang == "node_lost":
        away = [rank for rank in range(job.ranks) if _away(job, rank)]
        for cell in cells.values():
            cell[away, int(job.since // SCRAPE) :] = np.nan
    cells["gpu_util"] = np.clip(cells["gpu_util"], 0, 100)
    cells["sm_active"] = np.clip(cells["sm_active"], 0, 100)
    if not job.sm:
        del cells["sm_active"]
    job.panels = cells


def _does(job: Made, span: Span, rank: int) -> str:
    """Return which level of activity a rank's GPU is at."""
    if span.kind == "hang":
        if job.hang == "start":
            return "idle"
        still = {"asleep", "lock", "loader", "stopped", "busy", "chatter"}
        return "idle" if rank == job.culprit and job.hang in still else "waits"
    if span.kind == "retry" or (span.alone and rank != span.who):
        return "waits"
    return span.kind if span.kind in _LEVELS else "idle"


def panels(job: Made, now: float) -> dict[str, Panel]:
    """Return the last forty minutes of metrics; the newest scrape that is there is up to a minute old."""
    upto = int((now - 10.0) // SCRAPE)
    if not job.metrics or upto < 1:
        return {}
    begin = max(0, upto - 80)
    rows = [
        Row(Resource(node=f"node-{rank * 2 // job.ranks}", gpu=str(rank % 4), rank=rank)) for rank in range(job.ranks)
    ]
    return {
        name: make_panel(name, rows, BASE + begin * SCRAPE, SCRAPE, values[:, begin:upto])
        for name, values in job.panels.items()
    }
