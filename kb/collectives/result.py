"""The verdict on a job's collectives: its communicators, the culprits, and what is pending."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from kb.collectives.trace import Members
from kb.model import Frame, Gap

Kind = Literal["missing", "disagrees", "out_of_order", "not_finished", "not_started"]
CommState = Literal["missing", "stuck", "mismatch", "unseen"]


def title(pg: str, name: str) -> str:
    """Return a process group's name for people."""
    return f"{name} ({pg})" if name and name not in {"undefined", pg} else f"group {pg}"


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Ranks that ran different operations under one number. `what`: "op", "size" or "dtype".

    `odd`: the ranks that differ from `expected`, which most ran, and what they ran; all ranks if no side is larger (`tied`). `shift`:
    -1 if the odd ones seem to have skipped an operation, 1 if they seem to have made one too many. `elements`: how many elements the
    operation of each of `odd` moves. `because`: what settled a disagreement without a majority.
    """

    seq: int
    what: Literal["op", "size", "dtype"]
    expected: str
    odd: tuple[tuple[str, tuple[int, ...]], ...]
    tied: bool = False
    shift: int = 0
    elements: tuple[int, ...] = ()
    because: str = ""


@dataclass(frozen=True, slots=True)
class Communicator:
    """The verdict on one process group that has unfinished operations.

    `state`: "mismatch", "missing" (some rank has not queued number `seq`, others wait in it), "unseen" (only ranks
    without a dump may be missing) or "stuck" (all queued it, none finishes). `age` in seconds. `p2p`: sends and
    receives. `origin`: it is stuck, and nothing that its ranks queued before holds them up: the fault is in one of
    them, or in the network between them.
    """

    pg: str
    name: str
    members: Members
    state: CommState
    seq: int
    op: str
    joined: Members
    missing: Members = ()
    unseen: Members = ()
    age: float | None = None
    p2p: bool = False
    inferred: bool = False
    mismatch: Mismatch | None = None
    origin: bool = False
    states: Mapping[str, int] = field(default_factory=dict)  # of number `seq`: scheduled, started, completed → ranks


@dataclass(frozen=True, slots=True)
class Culprit:
    """A rank that others wait for while it waits for none, or that differs. `score` from 0 to 1, `groups` by name.

    `op` and `seq`: the operation of the first group that it has not queued, or queued differently. `ran`: what it queued;
    `others`: what its peers queued in its place; `differs`: what of the two differs, "" if the rank queued nothing there.
    """

    rank: int
    kind: Kind
    score: float
    reasons: tuple[str, ...]
    groups: tuple[str, ...] = ()
    op: str = ""
    seq: int | None = None
    source: str = ""
    frames: tuple[Frame, ...] = ()  # of its first unfinished operation, innermost first
    ran: str = ""
    others: str = ""
    differs: Literal["op", "size", "dtype", "order", ""] = ""


@dataclass(frozen=True, slots=True)
class Pending:
    """An unfinished operation and the ranks that are in it. `age` and `timeout` in seconds."""

    pg: str
    name: str
    seq: int
    op: str
    ranks: Members
    started: int
    age: float | None = None
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class CollectiveVerdict:
    """The verdict from all recorders of a job.

    `possible`: ranks without a dump (or with an inconclusive one) that others may wait for; they are not culprits.
    `waiting`: ranks with unfinished operations that are not culprits either. `groups` counts the communicators with
    unfinished operations, of which `communicators` keeps at most 256.
    """

    culprits: tuple[Culprit, ...] = ()
    possible: Members = ()
    communicators: tuple[Communicator, ...] = ()
    groups: int = 0
    pending: tuple[Pending, ...] = ()
    waiting: Members = ()
    seen: int = 0
    world: int | None = None
    gaps: tuple[Gap, ...] = ()
