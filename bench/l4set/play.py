"""Plays a planned case: makes the job and its twin, and writes their logs with line numbers for the truth."""

# ruff: noqa: PLR0917 - what is said has a place, a time, a voice and words, always in this order

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import yaml

from bench.l4set.course import NEVER, Course, Routine, Text, make_course
from bench.l4set.endings import finish
from bench.l4set.faults import ABNORMAL, CRASH_HARDWARE, CRASH_SOFTWARE, LAUNCH, OTHER
from bench.l4set.happenings import Incident, Stage, background, chatter, happen, noises
from bench.l4set.jobs import Job, Node, make_job, twin_of
from bench.l4set.plan import Planned
from bench.l4set.words import iso

EVERY_FAULT = LAUNCH + CRASH_HARDWARE + CRASH_SOFTWARE + ABNORMAL + OTHER
NEAR = 5  # lines around the last one before a silence that say the same
SEGMENT_OF = {
    "launch": "boot", "init": "boot", "data_load": "load", "checkpoint_load": "load", "iterating": "step",
    "evaluating": "eval", "saving": "save",
}  # fmt: skip
_KERNEL_START = (
    "Linux version 5.15.0-@-generic (buildd@lcy02) (gcc 11.4.0)", "Command line: BOOT_IMAGE=/vmlinuz root=/dev/md0 ro iommu=pt",
    "DMAR: IOMMU enabled", "nvme nvme0: 64/0/0 default/read/poll queues", "IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready",
    "systemd[1]: Detected architecture x86-64.", "RPC: Registered tcp NFSv4.1 backchannel transport module.",
)  # fmt: skip


@dataclass
class Written:
    """What is known of the logs that were written: lines by mark, bytes, lines in all."""

    marks: dict[str, list[list[Any]]] = field(default_factory=lambda: defaultdict(list))
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    size: int = 0
    lines: int = 0


class _File:
    """One log: writes lines, counts them, remembers the marked ones."""

    def __init__(self, folder: Path, name: str, written: Written, starts: float) -> None:
        self.name, self.written, self.starts = name, written, starts
        self.path = folder / name
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.out = self.path.open("w", encoding="utf-8", newline="\n")
        self.count = 0

    def add(self, text: Text) -> None:
        """Write a text."""
        if text.at < self.starts:
            return
        for line, mark in text.lines:
            self.count += 1
            self.out.write(line + "\n")
            if mark:
                self.written.marks[mark].append([self.name, self.count])

    def close(self, *, cut: int = 0) -> None:
        """Close it; with `cut` its last bytes are lost."""
        self.out.close()
        size = self.path.stat().st_size
        if cut and size > 4 * cut:
            with self.path.open("r+b") as out:
                out.truncate(size - cut)
            size -= cut
            text = self.path.read_bytes()
            self.count = text.count(b"\n") + (not text.endswith(b"\n"))
            for found in self.written.marks.values():
                found[:] = [one for one in found if one[0] != self.name or one[1] <= self.count]
        self.written.size += size
        self.written.lines += self.count


def play(planned: Planned, seed: int, scale: float, folder: Path) -> dict[str, Any]:
    """Write the bundle of a case; returns its truth."""
    number, fault = planned.number, planned.fault
    chance = Random(f"{seed}/{number}/play")
    job = make_job(str(seed), number, planned.style, planned.nodes, scale)
    events = planned.events
    if any(event.channel == "elastic" for event in events):
        job = replace(job, launcher="torchrun")
    absent = next((i for i, event in enumerate(events) if event.channel == "absent"), None)
    job = replace(job, verbose=job.verbose or absent is not None)
    if planned.stage == "evaluating" and not job.eval_every:
        job = replace(job, eval_every=10 * job.log_every)
    needed = {"evaluating": job.eval_every, "saving": job.save_every}.get(planned.stage, 0)
    if needed * 2 > job.length:
        job = replace(job, eval_every=job.eval_every and job.length // 4, save_every=job.length // 4)
    stage = Stage(job, chance)
    if fault is None:
        course, incident, state = make_course(job), None, "COMPLETED"
        end, stops = course.segments[-1].end, {}
    else:
        course, incident = _incident(job, planned, chance, absent)
        state = finish(stage, course, incident)
        end, stops = min(incident.end, course.segments[-1].end if fault.ending == "go" else NEVER), incident.stops
        if absent is not None and incident.segment.kind != "step":
            _others_go_on(incident)
        happen(stage, course, incident)
    noises(stage, course, stops, end, drift=(2, 8))
    chatter(stage, course, end)
    _rumours(stage, course, planned, stops, end)
    written = _write(job, course, stage, incident, end, folder, chance, fault)
    good = _twin(job, planned, folder)
    job_state = state if fault is not None or chance.random() < 0.8 else "RUNNING"
    _describe(folder, job, written, good, job_state, end)
    return _truth(planned, job, incident, written, job_state)


def _incident(job: Job, planned: Planned, chance: Random, absent: int | None) -> tuple[Course, Incident]:
    fault = planned.fault
    assert fault is not None
    records = job.length // job.log_every
    wanted = SEGMENT_OF[planned.stage]
    course = make_course(job)
    candidates = course.of(wanted)
    if wanted in ("step", "eval", "save"):
        share = (0.3, 0.75) if fault.ending == "go" else (0.12, 0.97)
        inside = [one for one in candidates if share[0] * records <= one.record <= share[1] * records] or candidates
        segment = inside[0] if fault.name == "tcp-fallback" else chance.choice(inside)
        if fault.name == "tcp-fallback":
            segment = course.of("step")[0]
    else:
        segment = candidates[0]
    if fault.slow > 1 or fault.loss:
        course = make_course(
            job,
            segment.record if fault.ending == "go" else segment.record - 8,
            fault.slow,
            "" if fault.loss == "overflow" else fault.loss,
        )
        segment = next(one for one in course.of(wanted) if one.record == segment.record)
    low, high = {
        "launch": (0.02, 0.15),
        "init": (0.35, 0.85),
        "data_load": (0.3, 0.6),
        "checkpoint_load": (0.6, 0.9),
    }.get(planned.stage, (0.1, 0.85))
    at = segment.begin + (segment.end - segment.begin) * chance.uniform(low, high)
    count = {"one": 1, "none": 0}.get(
        fault.scope, chance.randint(2, 3) if len(job.nodes) < 12 else chance.randint(2, 8)
    )
    count = min(count, max(1, len(job.nodes) - 1)) if count else 0
    pool = (
        job.nodes[1:]
        if fault.ending in {"rendezvous", "dead"} or (fault.least_nodes > 1 and chance.random() < 0.6)
        else job.nodes
    )
    nodes = (
        (job.nodes[0],)
        if fault.name == "port-taken"
        else tuple(
            sorted(chance.sample(pool or job.nodes, min(count, len(pool or job.nodes))), key=lambda node: node.index)
        )
    )
    each = [item for item in job.style.steps if item.who == "each"]
    ranks = tuple(node.ranks[0] if absent is not None and not each else chance.choice(node.ranks) for node in nodes)
    before = job.first_step + segment.record * job.log_every
    iteration = None
    if wanted == "step":
        iteration = before - (chance.randrange(job.log_every) if fault.ending != "go" else job.log_every - 1)
    elif wanted in ("eval", "save"):
        iteration = before
    return course, Incident(fault, at, segment.record, iteration, segment, nodes, ranks, planned.events, absent=absent)


def _others_go_on(incident: Incident) -> None:
    """Within an evaluation or a checkpoint the other ranks still do their own part, and wait then."""
    for rank in incident.stops:
        if rank not in incident.ranks and rank != 0:
            incident.stops[rank] = incident.segment.begin + 0.97 * (incident.segment.end - incident.segment.begin)


def _rumours(stage: Stage, course: Course, planned: Planned, stops: dict[int, float], end: float) -> None:
    """The common events of this failure and of one or two others, where nothing comes of them."""
    job, family = stage.job, Random(f"{stage.job.family}/rumours")
    fitting = [
        one
        for one in EVERY_FAULT
        if one.accelerator in ("", job.style.accelerator) and any(event.common for event in one.events)
    ]
    others = family.sample(fitting, 2)
    own = [planned.fault] if planned.fault and family.random() < 0.85 else []
    if not course.of("step") or course.of("step")[0].begin > end:
        return
    background(stage, course, [*own, *others[: stage.chance.randint(0, 2)]], stops, end)


def _twin(job: Job, planned: Planned, folder: Path) -> Written:
    """Write the baseline."""
    twin = twin_of(job, healthy_pair=planned.fault is None)
    chance = Random(f"{twin.seed}/play")
    stage, course = Stage(twin, chance), make_course(twin)
    end = course.segments[-1].end
    noises(stage, course, {}, end, drift=(0, 2))
    chatter(stage, course, end)
    _rumours(stage, course, planned, {}, end)
    return _write(twin, course, stage, None, end, folder, chance, None, part="baseline")


def _write(job: Job, course: Course, stage: Stage, incident: Incident | None, end: float, folder: Path, chance: Random,
           fault: Any, part: str = "logs") -> Written:  # fmt: skip
    written = Written()
    marked = (
        next((str(i) for i, event in enumerate(incident.events) if event.channel == "turn"), "") if incident else ""
    )
    heavy = (
        {rank: 1.0 for node in incident.nodes for rank in node.ranks} if incident and incident.fault.slow > 1 else {}
    )
    stops = incident.stops if incident else {}
    routine = Routine(job, course, stops=stops, turn=incident.record if incident and incident.fault.ending == "go" else None,
                      heavy=heavy, marked=marked, symptom=bool(marked))  # fmt: skip
    telling = {
        node.index
        for node in job.nodes
        if any(mark.isdigit() for text in stage.texts[node.index] for _, mark in text.lines)
    }
    telling |= {node.index for node in incident.nodes} if incident else set()
    if marked or any(node.index == 0 for node in job.nodes if node.index in telling):
        telling |= {0, len(job.nodes) - 1, job.node_of(max(0, job.world - job.tp)).index}
    spare = [node for node in job.nodes if node.index not in telling and node.index]
    lost = (
        set(chance.sample([node.index for node in spare], min(len(spare), chance.randint(1, 2))))
        if len(job.nodes) >= 4 and chance.random() < 0.14
        else set()
    )
    if (
        incident
        and fault
        and fault.name == "late-node"
        and chance.random() < 0.5
        and len(incident.events) > 1
        and incident.events[0].who == "first"
    ):
        lost |= {node.index for node in incident.nodes}
    damaged = {node.index for node in spare if chance.random() < 0.12} if chance.random() < 0.25 else set()
    for node in job.nodes:
        if node.index not in lost:
            _write_node(job, node, course, routine, stage.texts[node.index], incident, end, folder / part, written,
                        "" if node.index not in damaged else chance.choice(("head", "tail")), part)  # fmt: skip
    return written


def _write_node(  # noqa: C901 - one pass over a node
    job: Job, node: Node, course: Course, routine: Routine, extras: list[Text], incident: Incident | None,
                end: float, folder: Path, written: Written, damage: str, part: str) -> None:  # fmt: skip
    chance = Random(f"{job.seed}/{node.index}/lines")
    silent = incident.at if incident and node.index in incident.lost else end
    starts = course.segments[min(len(course.segments) // 3, 40)].begin if damage == "head" else 0.0
    files: dict[str, _File] = {}

    def file_of(text: Text) -> _File:
        name = f"{node.host}.log"
        if job.layout == "rank":
            name = f"{node.host}/agent.log" if text.rank is None else f"{node.host}/rank-{text.rank}.log"
        if text.kernel and job.kernel_apart:
            name = f"dmesg-{node.host}.log"
        if name not in files:
            files[name] = _File(folder, name, written, starts)
            written.files[f"{part}/{name}"] = {"node": node.host} | (
                {"rank": text.rank} if job.layout == "rank" and text.rank is not None else {}
            )
        return files[name]

    last: tuple[_File, int] | None = None
    if job.kernel_apart:
        for number, line in enumerate(_KERNEL_START):
            said = routine.voice.say(node, node.ranks[0], "kernel", "info", "", line, node.boot + 2 + 0.7 * number)
            text = Text(starts, None, tuple((one, "") for one in said), kernel=True)
            file_of(text).add(text)
    for text in _in_order(node, course, routine, extras, chance, silent):
        out = file_of(text)
        out.add(text)
        if (
            incident
            and incident.absent is not None
            and text.rank in incident.ranks
            and text.at <= incident.at
            and text.lines[0][1] == ""
        ):
            last = (out, out.count - len(text.lines) + 1)
    if last and incident:
        written.marks[str(incident.absent)].append([last[0].name, last[1]])
    for out in files.values():
        out.close(cut=chance.randint(20, 400) if damage == "tail" else 0)


def _in_order(
    node: Node, course: Course, routine: Routine, extras: list[Text], chance: Random, silent: float
) -> Iterator[Text]:
    """All texts of a node up to `silent`, by time; segment by segment, so that little is held."""
    waiting = sorted(extras, key=lambda text: text.at)
    position = 0
    for segment in course.segments:
        if segment.begin > silent:
            break
        chunk = list(routine.of(node, segment, chance))
        while position < len(waiting) and waiting[position].at < segment.end:
            chunk.append(waiting[position])
            position += 1
        chunk.sort(key=lambda text: text.at)
        yield from (text for text in chunk if text.at <= silent)
    yield from (text for text in waiting[position:] if text.at <= silent)


def _describe(folder: Path, job: Job, written: Written, good: Written, state: str, end: float) -> None:
    told = {
        "id": job.id, "name": job.name, "framework": job.style.name.split("-", maxsplit=1)[0], "world_size": job.world, "state": state,
        "start": iso(job.start, 0, 0).replace(".", ""), **({"end": iso(end, 0, 0).replace(".", "")} if state != "RUNNING" else {}),
        "collected_at": iso(end + 30, 0, 0).replace(".", ""), "nodes": {node.host: list(node.ranks) for node in job.nodes},
        "layout": {"tp": job.tp, "pp": job.pp, "dp": job.values["dp"]}, "log_interval": job.log_every,
        "checkpoint_interval": job.save_every,
    }  # fmt: skip
    (folder / "job.yaml").write_text(yaml.safe_dump(told, sort_keys=False), "utf-8")
    files = {"format": 1, "files": dict(sorted({**written.files, **good.files}.items()))}
    (folder / "bundle.yaml").write_text(yaml.safe_dump(files, sort_keys=False), "utf-8")


def _truth(planned: Planned, job: Job, incident: Incident | None, written: Written, state: str) -> dict[str, Any]:
    truth: dict[str, Any] = {
        "symptom": planned.symptom, "carrier": "made", "style": job.style.name, "node_count": len(job.nodes), "state": state,
        "lines_in_all": written.lines, "bytes": written.size,
    }  # fmt: skip
    if incident is None:
        return truth | {
            "fault": None,
            "cause": None,
            "nodes": [],
            "stage": None,
            "iteration": None,
            "events": [],
            "neutral": {},
            "cascade": {},
        }
    events = []
    for number, event in enumerate(incident.events):
        lines = [["logs/" + file, line] for file, line in written.marks.get(str(number), [])]
        if not lines:
            continue
        events.append({
            "level": event.level, "printed": event.channel in ("log", "nccl", "cann", "agent", "elastic", "warn"),
            "kind": {"absent": "absence", "turn": "turn"}.get(event.channel, "line"), "in_healthy": event.common or event.channel in ("absent", "turn"),
            "lines": lines,
        })  # fmt: skip
    return truth | {
        "fault": incident.fault.name, "cause": incident.fault.cause, "nodes": [node.host for node in incident.nodes],
        "ranks": list(incident.ranks), "stage": planned.stage, "iteration": incident.iteration, "events": events,
        "neutral": spans(written.marks.get("block", [])), "cascade": spans(written.marks.get("cascade", [])),
    }  # fmt: skip


def spans(lines: list[list[Any]]) -> dict[str, list[list[int]]]:
    """Lines by file, as runs from first to last."""
    found: dict[str, list[list[int]]] = {}
    for file, line in sorted(lines):
        runs = found.setdefault("logs/" + file, [])
        if runs and runs[-1][1] == line - 1:
            runs[-1][1] = line
        elif not runs or runs[-1][1] < line:
            runs.append([line, line])
    return found


def levels(truth: list[dict[str, Any]]) -> Counter[str]:
    """Decisive events by level."""
    return Counter(event["level"] for case in truth for event in case["events"])
