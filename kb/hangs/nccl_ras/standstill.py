"""Finds communicators that are stuck across several NCCL RAS answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

from kb.hangs.nccl_ras.world import MAX_POLLS, world_ranks
from kb.parsers.nccl_ras.values import Counts, Process, RasCommunicator, RasRank, RasReport
from kb.report import Ballot

THRESHOLD: Final = 30.0  # seconds
INIT_THRESHOLD: Final = 120.0  # a communicator of ten thousand ranks may take a minute to initialize
_STEADY: Final = 16  # number of answers searched for the last launch
SHOWN: Final = 256  # number of communicators and suspects listed individually

PendingKind = Literal["behind", "disagree", "missing", "init"]

_GONE: Final = ("missing", "dead", "absent")
_LEAVING: Final = ("finalizing", "aborted")


@dataclass(frozen=True, slots=True)
class RasPlace:
    """A rank of a pending communicator. `world_rank`: None if it could not be determined. `lag`: operations behind.

    `moves`: whether its process still launches operations in another communicator.
    """

    rank: int
    world_rank: int | None = None
    host: str = ""
    pid: int | None = None
    gpu: int | None = None
    lag: int = 0
    moves: bool = False


@dataclass(frozen=True, slots=True)
class PendingCommunicator:
    """A communicator that is stuck.

    `kind`: "behind" if some ranks launched fewer operations, "disagree" if the same number but different ones,
    "missing" if the others wait for ranks that do not answer, "init" if it does not finish initializing. `age`: minimum
    seconds without progress. `odd`: the smaller set of ranks, either those behind or those ahead; `ahead` says which.
    `certain`: the missing ranks are known to lack an operation that others launched.
    """

    id: str
    size: int
    kind: PendingKind
    op: str
    since: float
    age: float
    odd: tuple[RasPlace, ...] = ()
    missing: tuple[RasPlace, ...] = ()
    dead: tuple[RasPlace, ...] = ()
    ahead: bool = False
    certain: bool = True
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class RasSuspect:
    """A process that others wait for. `state`: "dead", "missing" or "behind".

    `lacks`, `waits`: the number of pending communicators in which others wait for it, and in which it waits for others.
    A process that never waits is a source.
    """

    place: RasPlace
    state: str
    lacks: int
    waits: int = 0


@dataclass(frozen=True, slots=True)
class RasVote:
    """Whether a collective is pending across several answers. `span`: seconds from the first to the last answer."""

    vote: Ballot
    detail: str
    age: float | None = None
    span: float | None = None
    polls: int = 0
    pending: tuple[PendingCommunicator, ...] = ()
    suspects: tuple[RasSuspect, ...] = ()


def ras_vote(
    polls: Sequence[RasReport],
    threshold: float = THRESHOLD,
    init_threshold: float = INIT_THRESHOLD,
    ranks: Mapping[Process, int] | None = None,
    world_size: int | None = None,
) -> RasVote:
    """Decide whether a collective has been pending for `threshold` seconds across two or more answers, and on which ranks.

    A communicator counts if its ranks have launched different operations or it lacks ranks, and its counts have not
    changed for that long. One that is initializing may take `init_threshold`; one that is being torn down never counts.
    `ranks` and `world_size` give the global ranks (see `world_ranks`).
    """
    timed = sorted((poll for poll in polls if poll.time is not None), key=lambda poll: (poll.time or 0.0, poll.source))[
        -MAX_POLLS:
    ]
    if len(timed) < 2:
        return RasVote("not_observable", "needs two RAS answers with known times", polls=len(timed))
    span = (timed[-1].time or 0.0) - (timed[0].time or 0.0)
    if span < threshold:
        return RasVote(
            "not_observable",
            f"the answers are only {span:.0f} s apart; {threshold:.0f} s are needed",
            span=span,
            polls=len(timed),
        )
    comparing = _Polls(timed, world_ranks(timed, world_size, ranks), world_size)
    found = [
        one for comm in timed[-1].communicators if (one := comparing.judge(comm, threshold, init_threshold)) is not None
    ]
    found.sort(key=lambda item: (-item.age, -item.size, item.id))
    if not found:
        return RasVote(
            "no",
            f"no communicator is stalled with ranks apart over {span:.0f} s, {len(timed)} answers",
            span=span,
            polls=len(timed),
        )
    age = max(item.age for item in found)
    suspects = comparing.suspects(found)
    return RasVote("yes", _detail(found, suspects, age), age, span, len(timed), tuple(found[:SHOWN]), suspects)


def last_launch(polls: Sequence[RasReport]) -> float | None:
    """Return the time of the newest answer with more launches than its predecessor; None if it is over 16 answers old."""
    timed = sorted((poll for poll in polls if poll.time is not None), key=lambda poll: (poll.time or 0.0, poll.source))
    newest = [(poll.time, _launched(poll)) for poll in timed[-_STEADY:]]
    for (_, before), (time, after) in reversed(list(pairwise(newest))):
        if any(counts != before.get(who, counts) for who, counts in after.items()):
            return time
    return None


def _launched(poll: RasReport) -> dict[tuple[str, int], Counts]:
    return {(comm.id, rank.rank): rank.counts for comm in poll.communicators for rank in comm.ranks if rank.counts}


def _detail(found: Sequence[PendingCommunicator], suspects: Sequence[RasSuspect], age: float) -> str:
    what = f"{len(found)} communicator{'s' if len(found) > 1 else ''} stalled for at least {age:.0f} s"
    named = [f"{suspect.state} {_name(suspect.place)}" for suspect in suspects[:4]]
    more = f" and {len(suspects) - 4} more" if len(suspects) > 4 else ""
    return f"{what}; waiting for: {', '.join(named)}{more}" if named else what


def _name(place: RasPlace) -> str:
    if place.world_rank is not None:
        return f"rank {place.world_rank}"
    return f"process {place.pid} on {place.host}" if place.pid is not None else f"rank {place.rank} of its communicator"


class _Polls:
    """The answers under comparison, oldest first, with the position of each communicator in them."""

    def __init__(self, polls: Sequence[RasReport], world: Mapping[Process, int], world_size: int | None) -> None:
        self._polls = polls
        self._world = world
        self._world_size = world_size
        self._index = [{comm.id: comm for comm in poll.communicators} for poll in polls]
        self._moving = self._movers()
        self._waits: Counter[Process] = Counter()

    def _movers(self) -> set[Process]:
        """Return the processes that launched something between the last two answers."""
        before, moving = self._index[-2], set()
        for comm in self._polls[-1].communicators:
            old = before.get(comm.id)
            if old is not None and not comm.partial:
                had = {rank.rank: rank.counts for rank in old.ranks}
                moving |= {
                    (rank.host, rank.pid)
                    for rank in comm.ranks
                    if rank.pid is not None and rank.counts and had.get(rank.rank, rank.counts) != rank.counts
                }
        return moving

    def judge(self, comm: RasCommunicator, threshold: float, init_threshold: float) -> PendingCommunicator | None:
        """Decide whether one communicator of the newest answer is pending, for at least so many seconds; None if it is not."""
        states = {rank.state for rank in comm.ranks}
        if states & set(_LEAVING):
            return None
        since = self._since(comm)
        age = (self._polls[-1].time or 0.0) - since
        starting = "init" in states or states >= {"absent", "running"}
        if age < (init_threshold if starting else threshold):
            return None
        present = [rank for rank in comm.ranks if rank.state not in _GONE]
        if starting:
            return self._gathered(
                comm, "init", since, [rank for rank in present if rank.state == "init"] if "running" in states else []
            )
        apart = _apart(comm, present)
        if apart is not None:
            kind, op, odd, ahead = apart
            return self._gathered(comm, kind, since, odd, op=op, ahead=ahead)
        if states & {"missing", "dead"}:
            return self._gathered(comm, "missing", since, [], certain=self._lacks(comm))
        return None

    def _since(self, comm: RasCommunicator) -> float:
        """Return the time of the earliest answer after which the communicator did not change."""
        now = {rank.rank: rank.counts for rank in comm.ranks}
        since = self._polls[-1].time or 0.0
        for poll, index in zip(reversed(self._polls[:-1]), reversed(self._index[:-1]), strict=True):
            old = index.get(comm.id)
            if old is None or old.partial != comm.partial or not _same(old, comm, now):
                break
            since = poll.time or 0.0
        return since

    def _lacks(self, comm: RasCommunicator) -> bool:
        """Whether a missing rank had launched fewer operations when last seen than the others have now."""
        most = max((_total(rank) for rank in comm.ranks if rank.counts), default=0)
        gone = {rank.rank for rank in comm.ranks if rank.state in _GONE}
        for index in reversed(self._index[:-1]):
            old = index.get(comm.id)
            seen = [rank for rank in old.ranks if rank.rank in gone and rank.counts] if old is not None else []
            if seen:
                return any(_total(rank) < most for rank in seen)
        return False

    def _gathered(
        self,
        comm: RasCommunicator,
        kind: PendingKind,
        since: float,
        odd: Sequence[RasRank],
        *,
        op: str = "",
        ahead: bool = False,
        certain: bool = True,
    ) -> PendingCommunicator:
        most = max((_total(rank) for rank in comm.ranks if rank.counts), default=0)
        lacking = {rank.rank for rank in odd}
        waiting = 0
        for rank in comm.ranks:
            if rank.state not in _GONE and rank.rank not in lacking and rank.pid is not None:
                self._waits[rank.host, rank.pid] += 1
                waiting += 1
        return PendingCommunicator(
            id=comm.id,
            size=comm.size,
            kind=kind,
            op=op,
            since=since,
            age=(self._polls[-1].time or 0.0) - since,
            odd=tuple(self._place(comm, rank, most) for rank in odd),
            missing=tuple(self._place(comm, rank, 0) for rank in comm.ranks if rank.state in {"missing", "absent"}),
            dead=tuple(self._place(comm, rank, 0) for rank in comm.ranks if rank.state == "dead"),
            ahead=ahead,
            certain=certain,
            waiting=waiting if not comm.partial else max(0, comm.size - len(comm.ranks)),
        )

    def _place(self, comm: RasCommunicator, rank: RasRank, most: int) -> RasPlace:
        key = (rank.host, rank.pid) if rank.pid is not None else None
        world = self._world.get(key) if key is not None else None
        if world is None and comm.size == self._world_size:
            world = rank.rank
        lag = max(0, most - _total(rank)) if rank.counts and not comm.partial else 0
        return RasPlace(rank.rank, world, rank.host, rank.pid, rank.gpu, lag, key in self._moving)

    def suspects(self, found: Sequence[PendingCommunicator]) -> tuple[RasSuspect, ...]:
        """Return the processes that others wait for: first those that never wait, then dead ones, then those in most communicators."""
        held: dict[Process | tuple[str, str, int], RasSuspect] = {}
        for pending_communicator in found:
            for state, places in (
                ("dead", pending_communicator.dead),
                ("missing", pending_communicator.missing),
                ("behind", pending_communicator.odd),
            ):
                for place in places:
                    named = (place.host, place.pid) if place.pid is not None else None
                    key = named or ("", pending_communicator.id, place.rank)
                    old = held.get(key)
                    waits = self._waits[named] if named else 0
                    lacks = old.lacks + 1 if old else 1
                    held[key] = RasSuspect(
                        old.place if old else place, _worse(old.state if old else state, state), lacks, waits
                    )
        order = {"dead": 0, "missing": 1, "behind": 2}
        ranked = sorted(
            held.values(),
            key=lambda ras_suspect: (
                ras_suspect.waits > 0,
                order[ras_suspect.state],
                ras_suspect.place.moves,
                -ras_suspect.lacks,
                ras_suspect.place.world_rank or 0,
                ras_suspect.place.host,
                ras_suspect.place.rank,
            ),
        )
        return tuple(ranked[:SHOWN])


def _worse(entry: str, other: str) -> str:
    return min(entry, other, key=("dead", "missing", "behind").index)


def _same(old: RasCommunicator, new: RasCommunicator, now: Mapping[int, Counts]) -> bool:
    """Whether no rank counted in both answers launched an operation between them."""
    if new.partial:
        return old.levels == new.levels and {item.rank for item in old.ranks} == {item.rank for item in new.ranks}
    return all(not rank.counts or not now.get(rank.rank) or now[rank.rank] == rank.counts for rank in old.ranks)


def _total(rank: RasRank) -> int:
    return sum(count for _, count in rank.counts)


def _apart(comm: RasCommunicator, present: Sequence[RasRank]) -> tuple[PendingKind, str, list[RasRank], bool] | None:
    """Return how the ranks' launches differ: the kind, the operation, the odd ranks, and whether they are ahead."""
    if comm.partial:
        return _apart_text(comm, present)
    vectors = Counter(rank.counts for rank in present)
    if len(vectors) < 2:
        return None
    totals = Counter(_total(rank) for rank in present)
    op = _differing(vectors)
    if len(totals) == 1:
        usual = min(vectors, key=lambda counts: (-vectors[counts], counts))
        return "disagree", op, [rank for rank in present if rank.counts != usual], False
    most = max(totals)
    behind = [rank for rank in present if _total(rank) < most]
    front = [rank for rank in present if _total(rank) == most]
    # the odd rank is the one that launched something alone, not the thousands that did not
    return ("behind", op, behind, False) if len(behind) <= len(front) else _fewer(op, behind, front)


def _fewer(op: str, behind: list[RasRank], front: list[RasRank]) -> tuple[PendingKind, str, list[RasRank], bool]:
    least = min(_total(rank) for rank in behind)
    last = [rank for rank in behind if _total(rank) == least]
    return ("behind", op, last, False) if len(last) <= len(front) else ("behind", op, front, True)


def _apart_text(
    comm: RasCommunicator, present: Sequence[RasRank]
) -> tuple[PendingKind, str, list[RasRank], bool] | None:
    if len({(level.op, level.count) for level in comm.levels}) < 2:
        return None
    op = max(Counter(level.op for level in comm.levels).items(), key=lambda item: (item[1], item[0]))[0]
    at = {level.count: level.ranks for level in comm.levels if level.op == op}
    least = min(at)
    behind = [rank for rank in present if dict(rank.counts).get(op) == least]
    return ("behind", op, behind, False) if behind else ("behind", op, [rank for rank in present if rank.counts], True)


def _differing(vectors: Mapping[Counts, int]) -> str:
    """Return the operation whose counts differ most."""
    spread: dict[str, tuple[int, int]] = {}
    for counts in vectors:
        for op, count in counts:
            low, high = spread.get(op, (count, count))
            spread[op] = (min(low, count), max(high, count))
    return max(spread, key=lambda op: (spread[op][1] - spread[op][0], op), default="")
