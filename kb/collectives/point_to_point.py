"""Checks for every pending send or receive whether the other side has queued its half."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from kb.collectives.communicators import GroupTraces, JobTraces
from kb.collectives.operation_mismatch import op_text
from kb.collectives.result import Communicator, Mismatch
from kb.collectives.trace import PeerTraffic, as_ranges, rank_at
from kb.collectives.wait_graph import FirstPending, WaitGraph


def judge_pairs(comm: GroupTraces, job: JobTraces, graph: WaitGraph, now: float | None) -> Iterator[Communicator]:
    """Check for every pending send or receive whether the other side has its half."""
    halves = {
        (rank, pair.source, pair.destination, pair.receives): pair
        for rank, lane in comm.lanes.items()
        for pair in lane.pairs
    }
    for (rank, *_), item in halves.items():
        if not item.pending or item.first is None:
            continue
        graph.pending.add(rank)
        graph.held.add(rank)
        if item.first.created is not None:
            graph.stands(rank, FirstPending(item.first.created, (comm.pg, comm.members, item.source, item.destination)))
        index = item.source if item.receives else item.destination
        other = rank_at(comm.members, index)
        if other is None or other == rank:
            continue
        verdict = _half(
            comm, job, graph, (rank, other, item), halves.get((other, item.source, item.destination, not item.receives))
        )
        if verdict is None:
            continue
        missing, unseen, mismatch = verdict
        yield Communicator(
            pg=comm.pg,
            name=comm.name,
            members=comm.members,
            state="mismatch" if mismatch else "missing" if missing else "unseen" if unseen else "stuck",
            seq=item.first.seq,
            op=f"{'recv' if item.receives else 'send'} {item.source}->{item.destination}",
            joined=as_ranges((rank,)),
            missing=as_ranges(missing),
            unseen=as_ranges(unseen),
            age=None if now is None or item.first.created is None else max(0.0, now - item.first.created),
            p2p=True,
            inferred=comm.inferred,
            mismatch=mismatch,
        )


def _half(
    comm: GroupTraces, job: JobTraces, graph: WaitGraph, own: tuple[int, int, PeerTraffic], theirs: PeerTraffic | None
) -> tuple[tuple[int, ...], tuple[int, ...], Mismatch | None] | None:
    """Who is missing, unseen, or in disagreement in one pending send or receive; None if the other side reports it already."""
    rank, other, ours = own
    if other not in job.rings:
        graph.edges[rank].append(other)
        graph.unseen.add(other)
        return (), (other,), None
    have = theirs.pending if theirs else 0
    known = theirs is not None and ours.whole and theirs.whole and ours.total <= theirs.total
    lacks = not have and not known  # if they have one pending, it is the other half of our first
    if lacks:
        graph.edges[rank].append(other)
        graph.blocked[rank].add((comm.pg, comm.members, ours.source, ours.destination))
        word = "send" if ours.receives else "recv"
        seq = ours.first.seq if ours.first else -1
        graph.wanted[other].append((comm.title, f"{word} {ours.source}->{ours.destination}", seq, 1))
        return (other,), (), None
    graph.edges[rank].append(other)
    graph.edges[other].append(rank)
    if theirs is None or ours.receives:
        return None
    a, b = job.rings[rank].shapes[ours.shape], job.rings[other].shapes[theirs.shape]
    if ours.pending == theirs.pending and a != b and theirs.pending:
        what: Literal["size", "dtype"] = "dtype" if a.inputs == b.inputs else "size"
        odd = ((op_text(a), (rank,)), (op_text(b), (other,)))
        return (), (), Mismatch(ours.first.seq if ours.first else -1, what, op_text(a), odd, tied=True)
    return (), (), None
