"""Judges one communicator: which rank is in which operation, and which has not queued an operation that others wait in."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from kb.collectives.communicators import GroupTraces, JobTraces, RankProgress, counts_of, op_of
from kb.collectives.group_roles import GroupRoles
from kb.collectives.operation_mismatch import mismatch_of
from kb.collectives.point_to_point import judge_pairs
from kb.collectives.result import CommState, Communicator
from kb.collectives.trace import DONE, Members, Ring, as_ranges, last_step
from kb.collectives.wait_graph import FirstPending, WaitGraph

_ONE_SIDED = frozenset(
    {"broadcast", "_broadcast_oop", "reduce", "_reduce_oop", "gather", "scatter"}
)  # an operation that a rank may finish alone


def judge_group(
    comm: GroupTraces, job: JobTraces, roles: GroupRoles, graph: WaitGraph, now: float | None
) -> Iterator[Communicator]:
    """Yield the verdicts on one communicator; its waits are added to the graph."""
    p2p = any(lane.pairs for lane in comm.lanes.values())
    if p2p:
        yield from judge_pairs(comm, job, graph, now)
    counts = counts_of(comm, job, p2p=p2p)
    pending = {rank for rank, item in counts.items() if item.done < item.queued}
    last = _last_of_all(comm, job)
    mismatch = mismatch_of(comm, job, roles, counts, last) if pending or last else None
    if not pending and mismatch is None:
        return
    graph.pending |= pending
    inside = _inside(comm, counts)
    _note_pending(comm, counts, inside, graph)
    seq, missing = _levels(comm, counts, inside, graph)
    absent = _ranks_without_data(comm, job, counts) if not missing else []
    if not missing:
        seq = min(counts[rank].done for rank in pending) + 1 if pending else last or -1
    joined = [rank for rank in pending or counts if counts[rank].queued >= seq]
    if pending and (inside or not missing):
        _clustered(counts, absent, graph)
    state: CommState = "mismatch" if mismatch else "missing" if missing else "unseen" if absent else "stuck"
    if mismatch:
        for _, ranks in mismatch.odd:
            for rank in ranks:
                graph.odd[rank].append((comm, mismatch))
    yield Communicator(
        pg=comm.pg,
        name=comm.name,
        members=comm.members,
        state=state,
        seq=seq,
        op=op_of(comm, job, seq),
        joined=as_ranges(tuple(sorted(joined))),
        missing=as_ranges(tuple(missing)),
        unseen=as_ranges(tuple(absent)),
        age=_age(comm, seq, now),
        inferred=comm.inferred,
        mismatch=mismatch,
        states=_states(comm, counts, seq),
    )


def wait_for_left(job: JobTraces, graph: WaitGraph) -> None:
    """The ranks that wait for a rank that left its peers' order, if its recorder does not say that it waits.

    gloo's recorder retires an operation that another rank never queued, although it cannot have finished. So a rank
    that queued nothing after it is still in it.
    """
    left: dict[tuple[str, Members, int], list[int]] = defaultdict(list)
    homes: dict[tuple[str, Members], GroupTraces] = {}
    for rank, item in graph.left.items():
        if item.by != "none" and item.instead is not None and not item.instead.p2p:
            home = job.home(rank, item.instead.lane)
            homes[home.pg, home.members] = home
            left[home.pg, home.members, item.instead.seq].append(rank)
    for (pg, members, seq), ranks in left.items():
        comm = homes[pg, members]
        stand = [rank for rank in comm.lanes if rank not in graph.pending and _last(job.rings[rank]) == (pg, seq)]
        node = graph.node()
        graph.edges[node] += ranks
        for rank in stand:
            graph.pending.add(rank)
            graph.edges[rank].append(node)
            graph.blocked[rank].add((pg, members, -1, -1))
        for rank in ranks if stand else ():
            graph.wanted[rank].append((comm.title, op_of(comm, job, seq), seq, len(stand)))


def _last_of_all(comm: GroupTraces, job: JobTraces) -> int | None:
    """The number after which no rank of the group queued anything, if recorders do not record how it ended (gloo)."""
    last = {None if job.rings[rank].states_told else _last(job.rings[rank]) for rank in comm.lanes}
    one = last.pop() if len(last) == 1 else None
    return one[1] if one is not None and one[0] == comm.pg else None


def _last(ring: Ring) -> tuple[str, int] | None:
    """Return the group and number of the collective that a rank queued last."""
    last = last_step(ring)
    return None if last is None or last.p2p else (ring.lanes[last.lane].pg, last.seq)


def _note_pending(
    comm: GroupTraces, counts: Mapping[int, RankProgress], inside: Collection[int], graph: WaitGraph
) -> None:
    """Record the ranks' operations, and which of them no rank finished."""
    top = max(count.done for count in counts.values())
    where = (comm.pg, comm.members, -1, -1)
    for rank, item in counts.items():
        if item.done >= item.queued:
            continue
        if rank in inside or item.queued > top:
            graph.held.add(rank)
        lane = comm.lanes.get(rank)
        made = lane.waits[0].created if lane is not None and lane.waits else None
        if made is not None:
            graph.stands(rank, FirstPending(made, where, rank not in inside))


def _ranks_without_data(comm: GroupTraces, job: JobTraces, counts: Mapping[int, RankProgress]) -> Sequence[int]:
    """Return members without a dump or entry of the group; for inferred members, any rank without a dump."""
    if comm.inferred:
        return job.absent
    return [rank for part in comm.members for rank in part if rank not in counts]


def _inside(comm: GroupTraces, counts: Mapping[int, RankProgress]) -> set[int]:
    """Return the ranks in an operation that no rank finished: that they queued no later one means nothing."""
    finished = sorted(count.done for count in counts.values())
    top = finished[-1]
    middle = finished[len(finished) // 2]
    out: set[int] = set()
    names: dict[int, bool] = {}
    for rank, item in counts.items():
        if item.done >= item.queued:
            continue
        first = item.done + 1
        if first not in names:
            names[first] = op_name(comm, first) in _ONE_SIDED
        if first > (middle if names[first] else top):
            out.add(rank)
    return out


def _levels(
    comm: GroupTraces, counts: Mapping[int, RankProgress], inside: Collection[int], graph: WaitGraph
) -> tuple[int, list[int]]:
    """Edges from who waits to who has not queued; the first number that is not queued by all, and who has not queued it."""
    by_queued: dict[int, list[int]] = defaultdict(list)
    for rank, item in counts.items():
        by_queued[item.queued].append(rank)
    levels = sorted(by_queued)
    late: list[int] = []
    seq, below = -1, 0
    for index, level in enumerate(levels):
        if index:
            behind = [rank for rank in by_queued[levels[index - 1]] if rank not in inside]
            node = graph.node()
            graph.edges[node] += behind
            if below:
                graph.edges[node].append(below)
            late += behind
            below = node
        waiters = [rank for rank in by_queued[level] if counts[rank].done < level]
        if late and waiters:
            seq = min(counts[rank].queued for rank in late) + 1
            for rank in waiters:
                graph.edges[rank].append(below)
                graph.blocked[rank].add((comm.pg, comm.members, -1, -1))
    if seq < 0:
        return -1, []
    return seq, _note_missing(comm, counts, (seq, late), graph)


def _note_missing(
    comm: GroupTraces, counts: Mapping[int, RankProgress], late: tuple[int, list[int]], graph: WaitGraph
) -> list[int]:
    """Record which of the late ranks are waited for."""
    seq, ranks = late
    ahead = [rank for rank, item in counts.items() if item.queued >= seq and item.done < item.queued]
    top = max(counts[rank].queued for rank in ahead)
    missing = sorted(rank for rank in ranks if counts[rank].queued < top)
    for rank in missing:
        after = counts[rank].queued + 1
        graph.wanted[rank].append((comm.title, op_name(comm, after), after, len(ahead)))
    return missing


def _clustered(counts: Mapping[int, RankProgress], absent: Sequence[int], graph: WaitGraph) -> None:
    """Add edges between all ranks in an operation that no rank finishes, and to those without a dump."""
    stuck = [rank for rank, item in counts.items() if item.done < item.queued]
    first = min(counts[rank].done for rank in stuck) + 1
    node = graph.node()
    for rank in stuck:
        if counts[rank].done < first <= counts[rank].queued:
            graph.edges[rank].append(node)
            graph.edges[node].append(rank)
    if absent:
        graph.edges[node].append(graph.nodes_of(absent))


def op_name(comm: GroupTraces, seq: int) -> str:
    """Return the operation that a rank recorded under a number; of the first waits, which every lane keeps."""
    for lane in comm.lanes.values():
        for wait in lane.waits:
            if wait.seq == seq:
                return wait.op
    return ""


def _age(comm: GroupTraces, seq: int, now: float | None) -> float | None:
    made = [
        wait.created
        for lane in comm.lanes.values()
        for wait in lane.waits
        if wait.seq >= seq and wait.created is not None
    ]
    return None if now is None or not made else max(0.0, now - min(made))


def _states(comm: GroupTraces, counts: Mapping[int, RankProgress], seq: int) -> dict[str, int]:
    names = ("", "scheduled", "started", "completed")
    return {
        name: n for name, n in Counter(names[_state_at(comm, counts, rank, seq)] for rank in counts).items() if name
    }


def _state_at(comm: GroupTraces, counts: Mapping[int, RankProgress], rank: int, seq: int) -> int:
    lane = comm.lanes.get(rank)
    if lane is not None and 0 <= lane.first <= seq <= lane.last:
        return lane.states[seq - lane.first]
    one = counts[rank]
    return DONE if one.done >= seq else 0
