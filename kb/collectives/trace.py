"""Reduces one rank's collective trace to what is needed to compare ranks: a few kilobytes instead of megabytes.

There is one lane per process group: which operation had which number (as an index into the shapes), its outcome, the
unfinished ones with their times, and the counts of sends and receives by pair. Bounded, and created where the dump is
read.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final, NamedTuple

from kb.model import Collective, CollectiveTrace

ABSENT: Final = 0
SCHEDULED: Final = 1
STARTED: Final = 2
DONE: Final = 3
SPARSE = 8  # a lane keeps at most this many numbers per operation, and 64 more: its last ones
ORDER = 128  # number of last operations of a rank whose order across all its groups is kept
_WAITS = 4  # number of first unfinished operations of a lane that are kept with their times
_MERGED = 32  # number of operations under one number (coalesced) whose sizes are kept
_WHOLE = frozenset({
    "all_reduce", "allreduce", "_all_gather_base", "_allgather_base", "all_gather_into_tensor", "_reduce_scatter_base",
    "reduce_scatter_tensor", "broadcast", "_broadcast_oop", "reduce", "_reduce_oop", "barrier", "all_reduce_barrier",
    "allreduce_coalesced", "all_gather_into_tensor_coalesced", "reduce_scatter_tensor_coalesced",
})  # fmt: skip
_ONLY_IN = frozenset({"gather", "reduce_scatter"})  # the output may rightly differ by rank
_ONLY_OUT = frozenset({"all_gather", "allgather", "scatter"})
_STATE = {"started": STARTED, "completed": DONE}

Members = tuple[range, ...]


@dataclass(frozen=True, slots=True)
class OpShape:
    """An operation's name, input and output sizes by dimension, and types; only the parts that a group's ranks must share."""

    op: str
    inputs: tuple[tuple[int, ...], ...] = ()
    outputs: tuple[tuple[int, ...], ...] = ()
    dtypes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PendingOp:
    """An unfinished operation: its number, name, state, when it was queued, its time limit in milliseconds."""

    seq: int
    op: str
    state: int
    created: float | None = None
    timeout_ms: float | None = None


@dataclass(frozen=True, slots=True)
class PeerTraffic:
    """Sends, or receives, of this rank with one other (ranks within the group): how many the ring has, how many are pending."""

    source: int
    destination: int
    receives: bool
    total: int
    pending: int
    whole: bool  # the ring goes back to the group's first operation
    first: PendingOp | None = None  # the first pending one
    shape: int = 0  # its index into the shapes


@dataclass(frozen=True, slots=True)
class GroupLane:
    """One rank's recorded data about one process group.

    `first` is the number of the first operation in `shapes` (indices, native 32 bit, one per number) and `states` (one
    byte per number); -1 if the ring has none. `last` and `done` are the highest number in the ring, and the highest
    finished. `status` is the recorder's own count: enqueued, started, completed. In a group with sends and receives it
    counts either. `ended`: when number `done` was seen to be finished, by this rank's clock.
    """

    pg: str
    name: str = ""
    members: Members = ()
    status: tuple[int, int, int] | None = None
    first: int = -1
    last: int = -1
    done: int = -1
    shapes: bytes = b""
    states: bytes = b""
    waits: tuple[PendingOp, ...] = ()
    pairs: tuple[PeerTraffic, ...] = ()
    ended: float | None = None


@dataclass(frozen=True, slots=True)
class Ring:
    """One rank's recorder. `shapes[0]` means no operation. `oldest`: its first unfinished operation, with its stack.

    `counts_all`: the recorder counts every group, so a group of the rank without a count was never used. `states_told`:
    it records the outcome of operations; otherwise (gloo) "done" only means that it ended, successfully or not.
    `order`: see `steps`; `moments`: when each of these was queued (64 bit floats, seconds since the epoch, NaN if
    unknown).
    """

    source: str
    rank: int | None
    backend: str = ""
    time: float | None = None
    shapes: tuple[OpShape, ...] = ()
    lanes: tuple[GroupLane, ...] = ()
    oldest: Collective | None = None
    inferred: bool = False
    counts_all: bool = False
    states_told: bool = True
    order: bytes = b""
    moments: bytes = b""


class QueuedOp(NamedTuple):
    """An operation in the order of a rank: the index of its lane, its number there, whether it is a send or receive."""

    lane: int
    seq: int
    p2p: bool = False


@dataclass(slots=True)
class _LaneBuilder:
    """A lane under construction."""

    collectives: dict[int, tuple[int, int]] = field(default_factory=dict)  # number → shape, state
    waits: list[PendingOp] = field(default_factory=list)
    sent: dict[tuple[int, int, bool], list[Collective]] = field(default_factory=dict)
    first_p2p: int | None = None
    ended: tuple[int, float | None] = (-1, None)  # number, time


def digest(trace: CollectiveTrace) -> Ring:
    """Digest a trace. Linear in its entries."""
    has_states = any(entry.state in _STATE for entry in trace.entries)
    lanes: dict[str, _LaneBuilder] = {}
    shapes: dict[OpShape, int] = {OpShape(""): 0}
    by_index: list[OpShape] = [OpShape("")]
    oldest: Collective | None = None
    for entry in trace.entries:
        lane = lanes.get(entry.pg)
        if lane is None:
            lane = lanes[entry.pg] = _LaneBuilder()
        state = _state(entry, has_states=has_states)
        if state != DONE and (oldest is None or (entry.created or 0) < (oldest.created or 0)):
            oldest = entry
        if entry.p2p:
            _add_p2p(lane, entry)
        elif 0 <= entry.seq < 1 << 62:
            _add(lane, entry, state, shapes, by_index)
    status = trace.status
    names = dict.fromkeys([*trace.groups, *lanes, *(name for name in status if not name.startswith("#"))])
    order, moments = _order(trace.entries, {name: index for index, name in enumerate(names)})
    closed = tuple(
        _close(name, lanes.get(name, _LaneBuilder()), trace, (shapes, by_index), has_states) for name in names
    )
    return Ring(
        source=trace.source,
        rank=trace.rank,
        backend=trace.backend,
        time=trace.time,
        shapes=tuple(by_index),
        lanes=closed,
        oldest=oldest and replace(oldest, frames=oldest.frames[:16]),
        inferred=trace.inferred_groups,
        counts_all=bool(status) and not any(name.startswith("#") for name in status),
        states_told=has_states,
        order=order,
        moments=moments,
    )


def steps(ring: Ring) -> tuple[QueuedOp, ...]:
    """The last operations that a rank queued over all its groups, at most `ORDER`, in the order of its recorder."""
    numbers = array("q", ring.order)
    return tuple(
        QueuedOp(lane >> 1, seq, bool(lane & 1)) for lane, seq in zip(numbers[::2], numbers[1::2], strict=True)
    )


def queued_times(ring: Ring) -> Sequence[float]:
    """Return when each of `steps` was queued, NaN if unknown; empty if no time is known at all."""
    return array("d", ring.moments)


def last_step(ring: Ring) -> QueuedOp | None:
    """Return the last of these operations."""
    lane, seq = array("q", ring.order[-16:]) if ring.order else (-1, -1)
    return QueuedOp(lane >> 1, seq, bool(lane & 1)) if lane >= 0 else None


@lru_cache(maxsize=4096)  # all ranks of a job belong to the same groups
def as_ranges(ranks: tuple[int, ...]) -> Members:
    """The ordered ranks of a group, stored as a few ranges, so that 10,000 ranks take little memory."""
    out: list[range] = []
    start = 0
    while start < len(ranks):
        step = ranks[start + 1] - ranks[start] if start + 1 < len(ranks) else 1
        end = start + 1
        while step > 0 and end < len(ranks) and ranks[end] - ranks[end - 1] == step:
            end += 1
        out.append(range(ranks[start], ranks[end - 1] + 1, max(step, 1)))
        start = end
    return tuple(out)


def size(members: Members) -> int:
    """Return the number of ranks."""
    return sum(map(len, members))


def contains(members: Members, rank: int) -> bool:
    """Whether a rank is among them."""
    return any(rank in part for part in members)


def rank_at(members: Members, index: int) -> int | None:
    """Return the global rank of a rank within the group."""
    if index < 0:
        return None
    for part in members:
        if index < len(part):
            return part[index]
        index -= len(part)
    return None


def position(members: Members, rank: int) -> int:
    """Return the rank within the group of a global rank; -1 if it does not belong to it."""
    before = 0
    for part in members:
        if rank in part:
            return before + part.index(rank)
        before += len(part)
    return -1


def _state(one: Collective, *, has_states: bool) -> int:
    """Return the state of an operation. Recorders without states (gloo) retire only finished ones."""
    if one.retired and not has_states:
        return DONE
    return _STATE.get(one.state, SCHEDULED)


def _add(
    lane: _LaneBuilder, entry: Collective, state: int, shapes: dict[OpShape, int], by_index: list[OpShape]
) -> None:
    shape = _common(entry)
    before = lane.collectives.get(entry.seq)
    if before is not None:  # several under one number: a coalesced operation and its parts
        shape = _merged(by_index[before[0]], shape)
        state = min(state, before[1])
    index = shapes.get(shape)
    if index is None:
        index = shapes[shape] = len(by_index)
        by_index.append(shape)
    lane.collectives[entry.seq] = (index, state)
    if state == DONE and entry.seq >= lane.ended[0]:
        lane.ended = (entry.seq, entry.completed)
    if state != DONE and before is None and len(lane.waits) < _WAITS:
        lane.waits.append(_wait(entry, state))


def _common(entry: Collective) -> OpShape:
    """Return what the ranks of a group must have in common under one number."""
    if entry.op in _WHOLE:
        return OpShape(entry.op, entry.input_sizes, entry.output_sizes, tuple(sorted(set(entry.dtypes))))
    if entry.op in _ONLY_IN:
        return OpShape(entry.op, entry.input_sizes, (), tuple(sorted(set(entry.dtypes))))
    if entry.op in _ONLY_OUT:
        return OpShape(entry.op, (), entry.output_sizes, tuple(sorted(set(entry.dtypes))))
    return OpShape(entry.op)


def _merged(a: OpShape, b: OpShape) -> OpShape:
    if len(a.inputs) >= _MERGED:
        return a
    op = a.op if b.op in a.op.split("+") else f"{a.op}+{b.op}"[:200]
    return OpShape(op, a.inputs + b.inputs, a.outputs + b.outputs, tuple(dict.fromkeys(a.dtypes + b.dtypes)))


def _order(entries: Sequence[Collective], lanes: Mapping[str, int]) -> tuple[bytes, bytes]:
    """Pairs of 64 bit: twice the lane's index, plus one for a send or receive; and the number. Parts of one number are one.

    With them, when each was queued; of several parts the last one counts.
    """
    out: list[int] = []
    moments: list[float] = []
    for entry in reversed(entries):
        key = [lanes[entry.pg] * 2 + entry.p2p, entry.seq]
        if 0 <= entry.seq < 1 << 62 and out[-2:] != key:
            out += key
            moments.append(math.nan if entry.created is None else entry.created)
        if len(out) == 2 * ORDER:
            break
    numbers = array("q", out)
    numbers.reverse()
    numbers[::2], numbers[1::2] = numbers[1::2], numbers[::2]
    return numbers.tobytes(), array("d", reversed(moments)).tobytes()


def _wait(one: Collective, state: int) -> PendingOp:
    return PendingOp(one.seq, one.op, state, one.created, one.timeout_ms)


def _add_p2p(lane: _LaneBuilder, entry: Collective) -> None:
    if lane.first_p2p is None or entry.seq < lane.first_p2p:
        lane.first_p2p = entry.seq
    if entry.peer is not None:
        lane.sent.setdefault((*entry.peer, "recv" in entry.op), []).append(entry)


def _close(
    name: str,
    lane: _LaneBuilder,
    trace: CollectiveTrace,
    shapes: tuple[dict[OpShape, int], list[OpShape]],
    has_states: bool,
) -> GroupLane:
    numbers = lane.collectives
    last = max(numbers, default=-1)
    first = max(min(numbers), last - SPARSE * len(numbers) - 63) if numbers else -1
    members = trace.groups.get(name, ())
    whole = lane.first_p2p is not None and lane.first_p2p <= 1
    return GroupLane(
        pg=name,
        name=trace.group_names.get(name, ""),
        members=as_ranges(members) if members else (),
        status=trace.status.get(name),
        first=first,
        last=last,
        done=max((seq for seq, (_, state) in numbers.items() if state == DONE), default=-1),
        shapes=array("I", (numbers.get(seq, (0, 0))[0] for seq in range(first, last + 1))).tobytes()
        if numbers
        else b"",
        states=bytes(numbers.get(seq, (0, 0))[1] for seq in range(first, last + 1)) if numbers else b"",
        waits=tuple(sorted(lane.waits, key=lambda wait: wait.seq)),
        pairs=tuple(_pair(key, ops, whole, shapes, has_states) for key, ops in sorted(lane.sent.items())),
        ended=lane.ended[1],
    )


def _pair(
    key: tuple[int, int, bool],
    ops: Sequence[Collective],
    whole: bool,
    shapes: tuple[dict[OpShape, int], list[OpShape]],
    has_states: bool,
) -> PeerTraffic:
    unfinished = [collective for collective in ops if _state(collective, has_states=has_states) != DONE]
    first = unfinished[0] if unfinished else None
    index = 0
    if first is not None:
        known, by_index = shapes
        shape = OpShape("p2p", first.output_sizes if key[2] else first.input_sizes, (), first.dtypes)
        index = known.setdefault(shape, len(by_index))
        if index == len(by_index):
            by_index.append(shape)
    wait = None if first is None else _wait(first, _state(first, has_states=has_states))
    return PeerTraffic(*key, total=len(ops), pending=len(unfinished), whole=whole, first=wait, shape=index)


def indices(lane: GroupLane) -> Sequence[int]:
    """Return the shape indices of a lane, one per number from `first` on."""
    return array("I", lane.shapes)


def shape_at(lane: GroupLane, seq: int) -> int:
    """Return the shape index under one number; 0 if the lane has none."""
    place = seq - lane.first
    return array("I", lane.shapes[4 * place : 4 * place + 4])[0] if 0 <= lane.first <= seq <= lane.last else 0
