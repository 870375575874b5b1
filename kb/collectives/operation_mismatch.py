"""Finds ranks that ran different operations, sizes or types under one number of one process group."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

from kb.collectives.communicators import GroupTraces, JobTraces, RankProgress
from kb.collectives.group_roles import GroupRoles
from kb.collectives.result import Mismatch
from kb.collectives.trace import OpShape, indices

_BACKERS = 2  # number of ranks of other groups that settle a disagreement without a majority
_TENSORS = 3  # of an operation, shown in its text


@dataclass(frozen=True, slots=True)
class _GroupContext:
    """The communicator in question, and all others."""

    comm: GroupTraces
    job: JobTraces
    roles: GroupRoles


def mismatch_of(
    comm: GroupTraces, job: JobTraces, roles: GroupRoles, counts: Mapping[int, RankProgress], last: int | None = None
) -> Mismatch | None:
    """Return the first number under which ranks ran different things, if the group got stuck there or later.

    `last`: the last number in all recorders of the group that do not say whether it worked.
    """
    ours = _GroupContext(comm, job, roles)
    lanes = {rank: lane for rank, lane in comm.lanes.items() if lane.first >= 0}
    if len(lanes) < 2:
        return None
    low = max(lane.first for lane in lanes.values())
    lanes = {rank: lane for rank, lane in lanes.items() if lane.last >= low}
    if len(lanes) < 2:
        return None
    high = min(lane.last for lane in lanes.values())
    ran: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for rank, lane in lanes.items():
        table = job.tables[rank]
        part = indices(lane)[low - lane.first : high - lane.first + 1]
        ran[tuple(table[index] for index in part)].append(rank)
    if len(ran) < 2:
        return None
    for place in range(high - low + 1):
        here: dict[int, list[int]] = defaultdict(list)
        for column, ranks in ran.items():
            if column[place]:
                here[column[place]] += ranks
        if len(here) > 1:
            worked = low + place != last and all(count.done >= low + place for count in counts.values())
            found = _mismatch_at(ours, (low + place, place), here, ran, worked=worked)
            if found is not None:
                return found
    return None


def _mismatch_at(
    ours: _GroupContext,
    where: tuple[int, int],
    here: Mapping[int, Sequence[int]],
    ran: Mapping[tuple[int, ...], Sequence[int]],
    *,
    worked: bool,
) -> Mismatch | None:
    seq, place = where
    shapes = list(ours.job.kinds)
    order = sorted(here, key=lambda kind: (-len(here[kind]), min(here[kind])))
    tied = len(here[order[0]]) == len(here[order[1]])
    what = _difference(shapes[order[0]], shapes[order[1]])
    if what != "op" and worked:
        return None  # so the job is written this way
    because = ""
    if tied and len(order) == 2 and (backed := _backed(ours, seq, order)):
        kind, ranks = backed
        order.sort(key=lambda item: item != kind)
        tied = False
        because = f"{ranks} ranks in other groups of this kind ran {op_text(shapes[kind])} there"
    odd = [kind for kind in order if tied or kind != order[0]]
    main = next(column for column, ranks in ran.items() if column[place] == order[0])
    other = next(column for column, ranks in ran.items() if column[place] == order[1])
    return Mismatch(
        seq=seq,
        what=what,
        expected=op_text(shapes[order[0]]),
        odd=tuple((op_text(shapes[kind]), tuple(sorted(here[kind]))) for kind in odd[:16]),
        tied=tied,
        shift=0 if tied else _shift(main, other, place),
        elements=tuple(_elements(shapes[kind]) for kind in odd[:16]),
        because=because,
    )


def _backed(ours: _GroupContext, seq: int, sides: Sequence[int]) -> tuple[int, int] | None:
    """Of two equally large sides, the one that groups of the same role ran under that number, and how many ranks of them did.

    Only if they agree with just one of the two: sizes rightly differ between pipeline stages.
    """
    votes = ours.roles.ran(ours.comm, seq)
    backed = [(kind, votes[kind]) for kind in sides if votes[kind]]
    return backed[0] if len(backed) == 1 and backed[0][1] >= _BACKERS else None


def _elements(shape: OpShape) -> int:
    return sum(prod(part) for part in shape.inputs or shape.outputs)


def _difference(a: OpShape, b: OpShape) -> Literal["op", "size", "dtype"]:
    if a.op != b.op:
        return "op"
    return "size" if (a.inputs, a.outputs) != (b.inputs, b.outputs) else "dtype"


def _shift(main: Sequence[int], other: Sequence[int], place: int) -> int:
    """-1 if from here on `other` runs what `main` runs one later, 1 if one earlier, else 0."""
    length = min(16, len(main) - place - 1)
    if length < 2:
        return 0
    if list(other[place : place + length]) == list(main[place + 1 : place + 1 + length]):
        return -1
    if list(main[place : place + length]) == list(other[place + 1 : place + 1 + length]):
        return 1
    return 0


def op_text(shape: OpShape) -> str:
    """Return an operation with its types and sizes, shortened: `all_reduce of Float [4608]`, `all_gather of Half [8] into [64]`."""
    inputs, outputs = (_sizes(part) for part in (shape.inputs, shape.outputs))
    into = f"into {outputs}" if inputs and outputs and inputs != outputs else ""
    kinds = ", ".join(dict.fromkeys(shape.dtypes))[:60]
    what = " ".join(part for part in (kinds, inputs or outputs, into) if part)
    return f"{shape.op} of {what}" if what else shape.op


def _sizes(tensors: Sequence[Sequence[int]]) -> str:
    """Return the sizes of a few tensors: `[4096], [2, 8]`; empty if there are none."""
    shown = ", ".join(str(list(tensor)) for tensor in tensors[:_TENSORS])
    return f"{shown[:120]} and {len(tensors) - _TENSORS} more" if len(tensors) > _TENSORS else shown[:120]
