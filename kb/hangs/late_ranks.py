"""Who joins a collective last: from when each rank queued the same operation, by the recorders of all ranks.

In a synchronous step all ranks take the same time, and the others wait for the slow one: it is the one that comes last, again
and again. Times are those of the hosts' clocks: a rank whose lag never goes away has another clock, or cannot be told from
one, and is not called. Backends that queue ahead of the device (NCCL) show the host's lag alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from kb.collectives.trace import Members, Ring, indices, queued_times, size, steps

LEAST = 5  # operations of one kind that tell a habit
SHARE = 0.2  # of the time between two of a kind: a smaller lag is jitter
OFTEN = 0.8
CLOCK = 0.5  # a lag of which so much is always there is a clock's
MOST_ROUNDS = 200_000


@dataclass(frozen=True, slots=True)
class CollectiveRound:
    """One operation of a group: when each of its ranks queued it. `kind` is the same for operations of one name and size."""

    members: Members
    name: str
    kind: str
    seq: int
    times: Mapping[int, float]

    @property
    def last(self) -> int:
        """The rank that came last."""
        return max(self.times, key=self.times.__getitem__)

    @property
    def lag(self) -> float:
        """Seconds by which the last one came behind the middle one of the others."""
        last = self.last
        return self.times[last] - median(time for rank, time in self.times.items() if rank != last)


@dataclass(frozen=True, slots=True)
class LateRank:
    """A rank that comes last to a group's operations again and again: by how many seconds, of how many between two of them."""

    rank: int
    group: str
    op: str
    lag: float
    period: float
    often: float
    count: int
    source: str = ""


def rounds_of(rings: Sequence[Ring]) -> tuple[CollectiveRound, ...]:
    """The operations that at least two ranks of one group have in their recorders, in the order of their numbers."""
    met: dict[tuple[Members, str, int], tuple[str, dict[int, float]]] = {}
    told = any(lane.members for ring in rings for lane in ring.lanes)
    for ring in rings:
        if ring.rank is None:
            continue
        kinds = [dict(enumerate(indices(lane), lane.first)) for lane in ring.lanes]
        for step, time in zip(steps(ring), queued_times(ring), strict=False):
            lane = ring.lanes[step.lane]
            if step.p2p or not math.isfinite(time) or (told and not lane.members):
                continue
            shape = ring.shapes[kinds[step.lane].get(step.seq, 0)]
            kind = f"{shape.op} {shape.inputs or shape.outputs}"
            key = (lane.members, lane.name or lane.pg, step.seq)
            if key in met or len(met) < MOST_ROUNDS:
                met.setdefault(key, (kind, {}))[1].setdefault(ring.rank, time)
    made = [
        CollectiveRound(who, name, kind, seq, times)
        for (who, name, seq), (kind, times) in met.items()
        if len(times) > 1
    ]
    return tuple(sorted(made, key=lambda collective_round: (collective_round.name, collective_round.seq)))


def late_ranks(rings: Sequence[Ring]) -> tuple[LateRank, ...]:
    """The ranks that others wait for in step after step, the longest waits first."""
    kinds: dict[tuple[Members, str, str], list[CollectiveRound]] = {}
    lags: dict[int, list[float]] = {}
    for item in rounds_of(rings):
        kinds.setdefault((item.members, item.name, item.kind), []).append(item)
        middle = median(item.times.values())
        for rank, time in item.times.items():
            lags.setdefault(rank, []).append(time - middle)
    sources = {ring.rank: ring.source for ring in rings}
    found = []
    for (members, name, _), rounds in kinds.items():
        ranks = size(members) or max(len(item.times) for item in rounds)
        whole = [item for item in rounds if len(item.times) == ranks]
        if (
            len({frozenset(item.times) for item in whole}) > 1
        ):  # groups of one name: it is not known who belongs to which
            continue
        late = _late(whole) if len(whole) >= LEAST else None
        if late is None:
            continue
        rank, lag, period, often = late
        if min(lags[rank]) > CLOCK * lag:  # never in time: another clock, for all that is known
            continue
        op = whole[0].kind.partition(" ")[0]
        found.append(LateRank(rank, name, op, lag, period, often, len(whole), sources.get(rank) or ""))
    found.sort(key=lambda item: (-item.lag / item.period, item.rank))
    return tuple({item.rank: item for item in reversed(found)}[rank] for rank in dict.fromkeys(o.rank for o in found))


def _late(rounds: Sequence[CollectiveRound]) -> tuple[int, float, float, float] | None:
    """Who is last in most rounds by a share of the time between them: rank, lag, that time, how often."""
    counts: dict[int, int] = {}
    for collective_round in rounds:
        counts[collective_round.last] = counts.get(collective_round.last, 0) + 1
    rank = max(counts, key=lambda count: (counts[count], -count))
    often = counts[rank] / len(rounds)
    own = [collective_round.times[rank] for collective_round in rounds]
    period = median(later - earlier for earlier, later in pairwise(own))
    mine = [collective_round for collective_round in rounds if collective_round.last == rank]
    lag = median(collective_round.lag for collective_round in mine)
    apart = median(_spread(collective_round) for collective_round in mine)
    if often < OFTEN or not 0 < SHARE * period <= lag <= period or 2 * apart > lag:
        return None
    return rank, lag, period, often


def _spread(collective_round: CollectiveRound) -> float:
    """How far the others are apart."""
    others = [time for rank, time in collective_round.times.items() if rank != collective_round.last]
    return max(others) - min(others)


def last_within(rings: Sequence[Ring], ranks: frozenset[int], excess: float) -> tuple[int, str] | None:
    """Of ranks that are one group, the one that the others of it wait for, and the group's name; None where it is not clear.

    `excess`: the seconds by which all of them are slower than the rest. The rank comes last, by most of that, in the group's
    operation with the longest wait: the others lose that time inside of the operation, the rank before it.
    """
    rounds = [
        item
        for item in rounds_of(rings)
        if item.times.keys() == ranks and frozenset(_ranks(item.members)) in (ranks, frozenset())
    ]
    waited = sorted((item for item in rounds if item.lag >= 0.5 * excess), key=lambda item: -item.lag)
    last = {item.last for item in waited}
    return (waited[0].last, waited[0].name) if len(last) == 1 else None


def _ranks(members: Members) -> list[int]:
    return [rank for part in members for rank in part][:4096]
