"""What happens besides the routine of a run: noise, the decisive events of its failure, and what else they leave behind."""

# ruff: noqa: PLR0917 - what is said has a place, a time, a voice and words, always in this order

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from bench.l4set import endings
from bench.l4set.course import NEVER, Course, Segment, Text, Voice, place_values, speakers
from bench.l4set.faults import Event, Fault
from bench.l4set.jobs import Job, Node
from bench.l4set.noise import ALL, CHATTER, DRIFT, Noise
from bench.l4set.words import american, fill, plain

NODE_CHANNELS = frozenset({"agent", "kernel", "elastic", "node"})
MOST = 8  # lines of one event, about: an engineer needs one of them
_WHERE = {"boot": ("boot", "load"), "steps": ("step",), "eval": ("eval",), "save": ("save",), "end": ("end",)}


@dataclass
class Incident:
    """A failure as it is played: the turn, who is faulty, when each rank falls silent, when the logs end."""

    fault: Fault
    at: float
    record: int
    iteration: int | None
    segment: Segment
    nodes: tuple[Node, ...]
    ranks: tuple[int, ...]
    events: tuple[Event, ...]
    stops: dict[int, float] = field(default_factory=dict)
    end: float = NEVER
    lost: frozenset[int] = frozenset()  # nodes of which nothing comes after the turn
    absent: int | None = None  # number of the event that is the missing of a line

    @property
    def down(self) -> float:
        """When the faulty processes have died of it, and their neighbours have noticed."""
        dying = [event.at[1] for event in self.events if event.channel in {"trace", "raw", "elastic", "nccl", "cann"}]
        return self.at + max([0.0, *dying])


class Stage:
    """Collects texts by node, with what is needed to write them."""

    def __init__(self, job: Job, chance: Random) -> None:
        self.job, self.chance, self.voice = job, chance, Voice(job)
        self.texts: dict[int, list[Text]] = {node.index: [] for node in job.nodes}
        self.values = job.values

    def filled(self, node: Node, rank: int, at: float, text: str, more: dict[str, Any]) -> str:
        """A template, filled for a rank at a time."""
        stamps = {"plain": plain(at + node.skew, node.zone), "accented": american(at + node.skew, node.zone)}
        return fill(text, self.values | place_values(self.job, node, rank) | stamps | more, self.chance)

    def put(self, node: Node, rank: int, channel: str, level: str, place: str, text: str, at: float, mark: str = "",
            more: dict[str, Any] | None = None) -> None:  # fmt: skip
        """Say a template. Of several physical lines the first with words bears the mark, the others are its block."""
        values = more or {}
        told = self.filled(node, rank, at, text, values)
        lines = self.voice.say(node, rank, channel, level, self.filled(node, rank, at, place, values), told, at)
        key = told.strip("\n").split("\n")[0][:40]
        decisive = next((i for i, line in enumerate(lines) if key and key in line), 0)
        marks = [mark if i == decisive or mark in ("", "cascade") else "block" for i in range(len(lines))]
        self.texts[node.index].append(
            Text(
                at,
                None if channel in NODE_CHANNELS else rank,
                tuple(zip(lines, marks, strict=True)),
                channel == "kernel",
            )
        )

    def trace(self, node: Node, rank: int, spot: str, text: str, at: float, mark: str, more: dict[str, Any]) -> None:
        """A traceback that ends in an exception; its last line bears the mark, the others are its block."""
        told = self.filled(node, rank, at, text, more)
        frames = endings.frames(self.job, spot, self.chance)
        head = f"[rank{rank}]: " if self.job.versions["torch"] >= "2.2" and self.chance.random() < 0.7 else ""
        body = [*frames, *told.split("\n")]
        lines = []
        for number, line in enumerate(body):
            said = self.voice.say(node, rank, "raw", "error", "", head + line, at)
            where = mark if number == len(frames) else ("cascade" if mark == "cascade" else "block")
            lines += [(one, where if not i else "block") for i, one in enumerate(said)]
        if not self.job.interleaved:
            self.texts[node.index].append(Text(at, rank, tuple(lines)))
            return
        for number, line in enumerate(lines):
            self.texts[node.index].append(Text(at + 0.0004 * number + self.chance.uniform(0, 0.0003), rank, (line,)))


def noises(stage: Stage, course: Course, stops: dict[int, float], end: float, *, drift: tuple[int, int]) -> None:
    """Noise: kinds that the job always has, some of this run alone, and those of new versions."""
    job = stage.job
    kinds = [one for one in (*ALL, *DRIFT) if one.accelerator in ("", job.style.accelerator)]
    family, own = Random(f"{job.family}/noise"), Random(f"{job.seed}/noise")
    common = [one for one in kinds if one not in DRIFT and family.random() < 0.42]
    rare = [one for one in kinds if one not in DRIFT and one not in common and own.random() < 0.08]
    fresh = own.sample([one for one in kinds if one in DRIFT], own.randint(*drift))
    places = {
        where: [one for name in names for one in course.of(name) if one.begin < end] for where, names in _WHERE.items()
    }
    longer = max(1.0, min(60.0, len(course.seconds) / 300))
    for kind in (*common, *rare, *fresh):
        for _ in range(int(longer * own.randint(1, kind.times))):
            if places[kind.where]:
                _noise(stage, course, kind, own.choice(places[kind.where]), stops, end, own)


def chatter(stage: Stage, course: Course, end: float) -> None:
    """What single machines say: how talkative they are is the cluster's, what they say is theirs."""
    job, own = stage.job, Random(f"{stage.job.seed}/chatter")
    talkative = Random(f"{job.family}/chatter").choice((0.0, 0.02, 0.05, 0.08))
    last = min(end, course.segments[-1].end)
    for node in job.nodes:
        for kind in CHATTER:
            while own.random() < talkative:
                at = own.uniform(course.segments[0].begin, last)
                stage.put(node, node.ranks[0], kind.channel, kind.level, "", kind.text, at)


def _noise(
    stage: Stage, course: Course, kind: Noise, segment: Segment, stops: dict[int, float], end: float, chance: Random
) -> None:
    job = stage.job
    at = chance.uniform(segment.begin, segment.end)
    if kind.channel in ("agent", "kernel") and kind.where == "steps" and end < NEVER:
        at = chance.uniform(course.segments[1].end, end)
    if kind.where == "end" and at > end:
        return
    for node, rank in _heard(job, kind.who, chance):
        when = at + chance.uniform(0, 0.4 if kind.who in ("each", "local0") else 2)
        if when > end or (when >= stops.get(rank, NEVER) and kind.channel not in NODE_CHANNELS):
            continue
        more = {"step": job.first_step + segment.record * job.log_every, "vloss": "2.0", "epoch": "0"}
        stage.put(node, rank, kind.channel, kind.level, kind.place, kind.text, when, "", more)
        later = when + chance.uniform(2, 50)
        if kind.then and later < min(end, stops.get(rank, NEVER)):
            stage.put(node, rank, kind.channel, "info", kind.place, kind.then, later, "", more)


def _heard(job: Job, who: str, chance: Random) -> list[tuple[Node, int]]:
    if who in ("one", "node"):
        node = chance.choice(job.nodes)
        return [(node, chance.choice(node.ranks) if who == "one" else node.ranks[0])]
    if who == "few":
        nodes = chance.sample(job.nodes, min(len(job.nodes), chance.randint(1, 3)))
        return [(node, chance.choice(node.ranks)) for node in nodes]
    return [(node, rank) for node in job.nodes for rank in speakers(job, node, who)]


def background(stage: Stage, course: Course, faults: Sequence[Fault], stops: dict[int, float], end: float) -> None:
    """What failing runs say of their fault and healthy ones say too, in smaller numbers, on any node, at any time."""
    chance = stage.chance
    steps = [one for one in course.of("step") if one.begin < end]
    for fault in faults:
        for event in (one for one in fault.events if one.common):
            for _ in range(chance.randint(1, 5)):
                node = chance.choice(stage.job.nodes)
                rank = 0 if event.who == "first" else chance.choice(node.ranks)
                node = stage.job.node_of(rank)
                segment = chance.choice(steps)
                at = chance.uniform(segment.begin, segment.end)
                if at > min(end, stops.get(rank, NEVER) if event.channel not in NODE_CHANNELS else end):
                    continue
                text = event.text if isinstance(event.text, str) else chance.choice(event.text)
                more = _named(
                    stage.job, node, rank, segment.record * stage.job.log_every + stage.job.first_step, chance
                )
                stage.put(node, rank, event.channel, event.level, event.place, text, at, "", more)


def _named(job: Job, bad: Node, rank: int, step: int, chance: Random) -> dict[str, Any]:
    peer = chance.choice([node for node in job.nodes if node is not bad] or [bad])
    return {"bad": bad.host, "badip": bad.ip, "peer": peer.host, "peerip": peer.ip, "step": step, "vloss": "2.0", "epoch": "0",
            "badrank": rank}  # fmt: skip


def targets(job: Job, incident: Incident, who: str, chance: Random) -> list[tuple[Node, int]]:  # noqa: C901, PLR0911 - a table
    """Who says an event of a failure."""
    bad, ranks = incident.nodes, incident.ranks
    others = [node for node in job.nodes if node not in bad] or list(job.nodes)
    match who:
        case "bad":
            return [(job.node_of(rank), rank) for rank in ranks]
        case "badall":
            return [(node, rank) for node in bad for rank in node.ranks]
        case "badnode" | "badnode0":
            return [(node, next((rank for rank in ranks if rank in node.ranks), node.ranks[0])) for node in bad]
        case "peers" | "peernodes":
            some = chance.sample(others, min(len(others), chance.randint(1, 3)))
            return [(node, chance.choice(node.ranks)) for node in some]
        case "neighbours":
            near = [job.nodes[(node.index + step) % len(job.nodes)] for node in bad for step in (1, -1)]
            return [
                (node, node.ranks[ranks[0] % job.per_node])
                for node in dict.fromkeys(near)
                if node not in bad or len(job.nodes) == 1
            ]
        case "first" | "firstnode":
            return [(job.nodes[0], 0)]
        case "allnodes":
            return [(node, node.ranks[0]) for node in job.nodes]
        case "some":
            some = chance.sample(job.nodes, min(len(job.nodes), chance.randint(1, 3)))
            return [(node, chance.choice(node.ranks)) for node in some]
        case "tp0s":
            some = sorted(chance.sample(job.nodes, min(len(job.nodes), 4)), key=lambda node: node.index)
            return [(node, node.ranks[0]) for node in some]
        case "edge":
            size = max(1, job.world // job.pp)
            return [(job.node_of(rank), rank) for rank in ({0, job.world - size} if job.pp > 1 else {0})]
        case "all":
            return [
                (node, rank) for node in job.nodes for rank in (node.ranks if len(job.nodes) <= 4 else node.ranks[:1])
            ]
        case _:
            raise ValueError(who)


def happen(stage: Stage, course: Course, incident: Incident) -> None:
    """The decisive events. An event's mark is its number."""
    job, chance = stage.job, stage.chance
    boot = course.segments[0]
    people: dict[str, list[tuple[Node, int]]] = {}
    for number, event in enumerate(incident.events):
        if event.channel in ("absent", "turn"):
            continue
        text = event.text if isinstance(event.text, str) else chance.choice(event.text)
        group = people.setdefault(event.who, targets(job, incident, event.who, chance))
        when = incident.at + chance.uniform(*event.at)
        if when < job.start + 1:
            when = (
                boot.begin + (boot.end - boot.begin) * chance.uniform(0.05, 0.5)
                if event.at[0] > -7000
                else boot.begin + 0.6 * (boot.end - boot.begin) + number
            )
            when = min(when, incident.at - 0.01)
        if len(group) > MOST and event.channel != "trace":
            group = people[event.who] = sorted(chance.sample(group, MOST), key=lambda one: one[1])
        count = min(chance.randint(*event.times), max(1, MOST // len(group)))
        for repeat in range(count):
            for index, (node, rank) in enumerate(group):
                at = when + repeat * event.every * chance.uniform(0.7, 1.3) + (chance.uniform(0, 1.5) if index else 0)
                if at > incident.end - 0.5 and repeat:
                    continue
                stopped = event.channel not in NODE_CHANNELS and event.at[1] < 0 and at > incident.at
                if stopped and incident.stops:
                    continue
                more = _named(
                    job,
                    incident.nodes[0] if incident.nodes else node,
                    rank,
                    incident.iteration or job.first_step,
                    chance,
                )
                if event.channel == "trace":
                    stage.trace(node, rank, event.place, text, at, str(number), more)
                else:
                    stage.put(node, rank, event.channel, event.level, event.place, text, at, str(number), more)
