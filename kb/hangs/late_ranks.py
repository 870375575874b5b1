"""Finds the rank that repeatedly joins collectives last, by comparing when each rank queued the same operation.

In a synchronous step, all ranks take the same time because they wait for the slowest, which is the rank
that repeatedly comes last. Times come from the hosts' clocks. A rank whose lag never goes away may have a
skewed clock, so it is not reported. Backends that queue ahead of the device (NCCL) show only the host's lag.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from kb.collectives.trace import Members, Ring, indices, queued_times, size, steps

LEAST = 5  # minimum number of operations of one kind to establish a pattern
SHARE = 0.2  # share of the time between two operations of a kind; a smaller lag is jitter
OFTEN = 0.8
CLOCK = 0.5  # if at least this share of a lag is always present, a clock causes it
MOST_ROUNDS = 200_000


@dataclass(frozen=True, slots=True)
class CollectiveRound:
    """The times at which each rank of a group queued one operation. Operations of the same name and size share a `kind`."""

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
        """Seconds between the median of the other ranks and the last rank."""
        last = self.last
        return self.times[last] - median(time for rank, time in self.times.items() if rank != last)


@dataclass(frozen=True, slots=True)
class LateRank:
    """A rank that repeatedly joins a group's operations last: its lag, and the time between two operations, in seconds."""

    rank: int
    group: str
    op: str
    lag: float
    period: float
    often: float
    count: int
    source: str = ""


def rounds_of(rings: Sequence[Ring]) -> tuple[CollectiveRound, ...]:
    """Return the operations that at least two ranks of a group have recorded, in the order of their numbers."""
    met: dict[tuple[Members, str, int], tuple[str, dict[int, float]]] = {}
    has_members = any(lane.members for ring in rings for lane in ring.lanes)
    for ring in rings:
        if ring.rank is None:
            continue
        kinds = [dict(enumerate(indices(lane), lane.first)) for lane in ring.lanes]
        for step, time in zip(steps(ring), queued_times(ring), strict=False):
            lane = ring.lanes[step.lane]
            if step.p2p or not math.isfinite(time) or (has_members and not lane.members):
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
    """Return the ranks that the others repeatedly wait for, longest waits first."""
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
        if len({frozenset(item.times) for item in whole}) > 1:  # groups share a name, so their members are unknown
            continue
        late = _late(whole) if len(whole) >= LEAST else None
        if late is None:
            continue
        rank, lag, period, often = late
        if min(lags[rank]) > CLOCK * lag:  # never on time, so the clock may be skewed
            continue
        op = whole[0].kind.partition(" ")[0]
        found.append(LateRank(rank, name, op, lag, period, often, len(whole), sources.get(rank) or ""))
    found.sort(key=lambda item: (-item.lag / item.period, item.rank))
    return tuple({item.rank: item for item in reversed(found)}[rank] for rank in dict.fromkeys(o.rank for o in found))


def _late(rounds: Sequence[CollectiveRound]) -> tuple[int, float, float, float] | None:
    """Return the rank that is last in most rounds by a minimum share of their interval: rank, lag, interval, number of rounds."""
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
    """Return the spread of the others."""
    others = [time for rank, time in collective_round.times.items() if rank != collective_round.last]
    return max(others) - min(others)


def last_within(rings: Sequence[Ring], ranks: frozenset[int], excess: float) -> tuple[int, str] | None:
    """Return the rank that the others in their common group wait for, and the group's name; None if that is unclear.

    `excess`: the seconds by which these ranks are slower than the rest. The late rank is last, by most of that time, in
    the operation of the group with the longest wait: the others lose the time inside the operation, the late rank
    before it.
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
