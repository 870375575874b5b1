"""Where each rank of a process group is in the sequence of its collectives: which numbers it queued, finished, or never reached.

A value for pictures: it judges nothing. Who is at fault is the verdict's (kb.collectives.analyse).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from kb.collectives.communicators import GroupTraces, JobTraces, gather_traces
from kb.collectives.result import CollectiveVerdict, Communicator, Mismatch, title
from kb.collectives.trace import ABSENT, DONE, STARTED, GroupLane, Members, Ring, as_ranges, shape_at
from kb.report import short_ranges

GROUPS = 4  # drawn, the ones that the verdict lists first
NUMBERS = 8  # columns, which fit on a page: the disputed number, two behind it, and those before it
BEHIND = 2
ROWS = 12  # ranks that stand at the same place share a row
_RANKS = 100_000  # of a group whose members are looked through

Cell = Literal["done", "running", "queued", "absent", "unknown"]
_CELLS: dict[int, Cell] = {DONE: "done", STARTED: "running", ABSENT: "absent"}


@dataclass(frozen=True, slots=True)
class Standing:
    """Ranks that stand at the same place. `cells`: a state for each number; `ops`: what they queued if others queued something else.

    `dumped`: whether their recorders were found; else the cells are unknown.
    """

    ranks: str
    count: int
    cells: tuple[Cell, ...]
    ops: tuple[str, ...]
    suspect: bool = False
    dumped: bool = True


@dataclass(frozen=True, slots=True)
class GroupSequence:
    """One process group: numbers `first` and on, the operation that most ranks queued under each, and where the ranks stand.

    `at`: the number in which ranks wait; `finding`: who waits for whom, in words; `left_out`: ranks without a row.
    """

    name: str
    first: int
    at: int
    ops: tuple[str, ...]
    rows: tuple[Standing, ...]
    finding: str
    left_out: int = 0


def group_sequences(rings: Iterable[Ring], verdict: CollectiveVerdict) -> tuple[GroupSequence, ...]:
    """Return the sequences of the groups with unfinished collectives, as the verdict has them, then of those that are uneven."""
    open_ = [item for item in verdict.communicators if not item.p2p][:GROUPS]
    if not open_:
        return ()
    job, blamed = gather_traces(rings), {culprit.rank for culprit in verdict.culprits}
    homes = {(comm.pg, comm.members): comm for comm in job.comms}
    pairs = [(item, comm) for item in open_ if (comm := homes.get((item.pg, item.members))) is not None]
    known = {id(comm) for _, comm in pairs}
    uneven = [(item, comm) for comm in job.comms if id(comm) not in known and (item := _uneven(comm)) is not None]
    return tuple(_sequence(item, comm, job, blamed) for item, comm in (*pairs, *uneven)[:GROUPS])


def _uneven(comm: GroupTraces) -> Communicator | None:
    """Return a group in which some ranks queued more than others, as if the others were missing; None for other groups."""
    last = {rank: lane.last for rank, lane in comm.lanes.items()}
    most = max(last.values(), default=-1)
    behind = tuple(sorted(rank for rank, number in last.items() if number < most))
    if not behind or any(lane.pairs for lane in comm.lanes.values()):
        return None
    joined = tuple(sorted(last.keys() - set(behind)))
    return Communicator(
        comm.pg, comm.name, comm.members, "missing", most, "", as_ranges(joined), missing=as_ranges(behind)
    )


def _sequence(found: Communicator, comm: GroupTraces, job: JobTraces, blamed: set[int]) -> GroupSequence:
    last = max(found.seq, min(found.seq + BEHIND, max((lane.last for lane in comm.lanes.values()), default=-1)))
    numbers = range(max(last - NUMBERS + 1, _oldest(comm), 0), last + 1)
    queued = {rank: _queued(lane, numbers, job.rings[rank]) for rank, lane in comm.lanes.items()}
    ops = tuple(_usual(names[at] for names in queued.values()) for at in range(len(numbers)))
    alike: dict[tuple[tuple[Cell, ...], tuple[str, ...], bool, bool], list[int]] = defaultdict(list)
    for rank in _ranks(found.members, comm):
        lane = comm.lanes.get(rank)
        cells: tuple[Cell, ...] = tuple(_cell(lane, number) for number in numbers)
        own = queued.get(rank, ("",) * len(numbers))
        others = tuple(_other(rank, *case, found.mismatch) for case in zip(numbers, own, ops, strict=True))
        alike[cells, others, rank in blamed, rank in job.rings].append(rank)
    rows = sorted(
        (Standing(short_ranges(ranks), len(ranks), *key) for key, ranks in alike.items()),
        key=lambda row: (not row.suspect, row.dumped, row.count),
    )
    left_out = sum(row.count for row in rows[ROWS:])
    return GroupSequence(
        title(found.pg, found.name), numbers.start, found.seq, ops, tuple(rows[:ROWS]), _finding(found, ops), left_out
    )


def _oldest(comm: GroupTraces) -> int:
    """Return the oldest number that some recorder still has."""
    return min((lane.first for lane in comm.lanes.values() if lane.first >= 0), default=0)


def _ranks(members: Members, comm: GroupTraces) -> Sequence[int]:
    """Return the members of a group, and who else recorded an operation in it."""
    known = {rank for part in members for rank in part[:_RANKS]}
    return sorted(known | comm.lanes.keys())


def _queued(lane: GroupLane, numbers: range, ring: Ring) -> tuple[str, ...]:
    """Return the name of the operation that a rank queued under each number; empty where it has none."""
    return tuple(ring.shapes[shape_at(lane, number)].op for number in numbers)


def _usual(names: Iterator[str]) -> str:
    """Return the name that most have; of two equally common ones the first by name. Empty if nobody has one."""
    counts = Counter(name for name in names if name)
    return min(counts, key=lambda name: (-counts[name], name), default="")


def _other(rank: int, number: int, own: str, usual: str, apart: Mismatch | None) -> str:
    """Return what a rank queued under a number if it differs from what most queued; empty if it does not."""
    if own not in ("", usual):
        return own
    if apart is None or apart.seq != number or apart.what == "op" or not any(rank in ranks for _, ranks in apart.odd):
        return ""
    return f"other {apart.what}"


def _cell(lane: GroupLane | None, number: int) -> Cell:
    """Return the state of a rank in one number; unknown without its recorder, and before the oldest that it has."""
    if lane is None:
        return "unknown"
    if lane.first < 0 or number > lane.last:
        return "absent"
    return "unknown" if number < lane.first else _CELLS.get(lane.states[number - lane.first], "queued")


def _finding(found: Communicator, ops: Sequence[str]) -> str:
    """Return who is where, in a sentence."""
    if not found.op:
        told = f"{_people(_flat(found.joined)).capitalize()} queued {ops[-1]} number {found.seq}"
        return f"{told}; {_people(_flat(found.missing))} did not."
    what = f"{found.op} number {found.seq}"
    if found.mismatch is not None:
        odd = "; ".join(f"{_people(ranks)} queued {name}" for name, ranks in found.mismatch.odd)
        expected = f", the others {found.mismatch.expected}" if not found.mismatch.tied else ""
        return f"Under number {found.mismatch.seq}, {odd}{expected}."
    waiting = f"{_people(_flat(found.joined)).capitalize()} {_verb(found.joined, 'waits', 'wait')} in {what}"
    if found.missing:
        return f"{waiting}; {_people(_flat(found.missing))} {_verb(found.missing, 'has', 'have')} not queued it."
    if found.unseen:
        return f"{waiting}; nothing is recorded of {_people(_flat(found.unseen))}."
    return f"{waiting}, which all of them have queued."


def _flat(members: Members) -> tuple[int, ...]:
    return tuple(rank for part in members for rank in part[:_RANKS])


def _people(ranks: Sequence[int]) -> str:
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {short_ranges(ranks)}"


def _verb(members: Members, one: str, many: str) -> str:
    return one if len(_flat(members)) == 1 else many
