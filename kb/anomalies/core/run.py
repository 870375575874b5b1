"""A run as the comparisons see it: its events (templates of log lines) by node, its steps, its stages. Pure values."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from kb.model import Job

FAILED = ("FAILED", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY", "LAUNCH_FAILED")
RANK = "rank "  # what a unit begins with that is a rank rather than a node
JOB = ""  # the node of a line that belongs to no node: a launcher's or a scheduler's


@dataclass(frozen=True, slots=True)
class LineRef:
    """A line: its source, the byte at which it starts, its number from 1 if known, seconds since the epoch, who wrote it.

    `dated`: the time is its own, and not that of the last line before it that has one.
    """

    source: str
    offset: int
    text: str = ""
    line: int | None = None
    time: float | None = None
    node: str = JOB
    rank: int | None = None
    dated: bool = True

    @property
    def order(self) -> tuple[bool, float, str, int]:
        """The key by which lines are sorted: by time, those without one last, then by source and offset."""
        return self.time is None, self.time or 0.0, self.source, self.offset


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """An event on one node: its count, its first and last few lines in order, and its lines by speaker: source and rank."""

    count: int
    spots: tuple[LineRef, ...]
    voices: Mapping[tuple[str, int | None], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunEvent:
    """A template of log lines. `text` has `<*>` for what varies; `level` is as written in the line, in lower case.

    `elsewhere`: how many logs that are not compared, because there are too many, have it as well.
    """

    id: str
    text: str
    level: str | None
    nodes: Mapping[str, NodeEvent]
    elsewhere: int = 0

    @property
    def count(self) -> int:
        """Lines of all nodes."""
        return sum(node.count for node in self.nodes.values())


@dataclass(frozen=True, slots=True)
class StepLine:
    """A step line. `seconds` per step, `loss` if it states them; `rate`: work done per second; `held_out`: of an evaluation."""

    spot: LineRef
    step: int
    seconds: float | None = None
    loss: float | None = None
    held_out: bool = False
    rate: float | None = None


@dataclass(frozen=True, slots=True)
class StageBeginning:
    """A line with which a stage begins."""

    spot: LineRef
    stage: str


@dataclass(frozen=True, slots=True)
class RunSource:
    """One source of a node: a rank's file or a node's. `last`: its last line; `lines`: how many it has."""

    source: str
    node: str
    rank: int | None
    lines: int
    last: LineRef | None = None
    kind: str = "job"


@dataclass(frozen=True, slots=True)
class RunStack:
    """The frames of an exception, outermost first, each as its function and its file; `spot`: its last line."""

    spot: LineRef
    frames: tuple[str, ...]


@dataclass(frozen=True)  # without slots: `heard` and `kinds` are asked for by each comparison, and built once
class RunProfile:
    """One run.

    `nodes`: all that the job had, including those without a log. `state`, `start`: its end and start according to the scheduler.
    `latest`: when it ended, or when its logs were collected: none of its lines is later.
    """

    events: Mapping[str, RunEvent]
    nodes: tuple[str, ...] = ()
    beats: tuple[StepLine, ...] = ()
    turns: tuple[StageBeginning, ...] = ()
    voices: tuple[RunSource, ...] = ()
    state: str = ""
    start: float | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    own_settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # by name and node, if nodes differ
    anchors: tuple[StepLine, ...] = ()  # steps that single ranks report besides the job's own step lines
    stacks: tuple[RunStack, ...] = ()
    losses: tuple[StepLine, ...] = ()  # lines of a loss that name no step; their step is 0
    pace: float | None = None  # seconds between step lines, if `beats` do not show it
    counted: tuple[StepLine, ...] = ()  # lines that count steps by structure; of those in between, most are not kept
    names: Mapping[str, str] = field(
        default_factory=dict
    )  # by unit what it is called, if not by a rank: an actor of Ray
    roles: Mapping[str, str] = field(default_factory=dict)  # by unit what it does, if not all ranks do the same
    latest: float | None = None

    @cached_property
    def heard(self) -> frozenset[str]:
        """The nodes that printed anything."""
        return frozenset(voice.node for voice in self.voices if voice.lines)

    @cached_property
    def ranks(self) -> frozenset[str]:
        """The ranks that printed anything and are compared with each other, as "rank 3"."""
        return frozenset(unit for unit in self.heard if unit.startswith(RANK))

    def peers(self, units: Collection[str]) -> frozenset[str]:
        """The ranks that do what one of the units does."""
        does = {self.roles.get(unit, "") for unit in units}
        return frozenset(rank for rank in self.ranks if self.roles.get(rank, "") in does) if self.roles else self.ranks

    @cached_property
    def kinds(self) -> Mapping[str, str]:
        """What each of `nodes` and `heard` is: a "rank", a "log" that belongs to no rank or node, or a "node"."""
        logs = {voice.source for voice in self.voices}
        units = sorted({*self.nodes, *self.heard} - {JOB})
        return {unit: "rank" if unit.startswith(RANK) else "log" if unit in logs else "node" for unit in units}


def has_failed(job: Job) -> bool:
    """Whether the scheduler says so, by its state or by the exit code of the last attempt."""
    last = job.attempts[-1] if job.attempts else None
    state = job.state or (last.state if last else None) or ""
    return state.upper().startswith(FAILED) or bool(last and last.exit_code)
