"""Finds where a job hangs from its ranks' recorders: which ranks never joined, are behind, disagree, or only wait.

Ranks wait for each other across process groups, so each group is judged first, and then all of them together as a graph
of who waits for whom. An unfinished operation that a rank has not queued is an edge to that rank; the source is the
rank that is waited for and waits for nobody. If ranks wait in a circle, the order in which each queued its operations
shows which one left the program that its peers run (kb.collectives.program_order).

What the recorder calls "enqueued" is counted after the library call returned: a rank inside the call looks as if it had
not made it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from kb.collectives.communicators import JobTraces, gather_traces
from kb.collectives.culprits import culprits_of, is_origin
from kb.collectives.group_roles import GroupRoles
from kb.collectives.program_order import divergences
from kb.collectives.result import CollectiveVerdict, Pending
from kb.collectives.trace import STARTED, Ring, as_ranges, digest, size
from kb.collectives.wait_graph import WaitGraph
from kb.collectives.waiting import judge_group, wait_for_left
from kb.model import CollectiveTrace

GROUPS = 256  # number of communicators whose verdicts are kept, those with the most waiting ranks first
PENDING = 256


def judge(traces: Iterable[CollectiveTrace], now: float | None = None) -> CollectiveVerdict:
    """Return the verdict over traces. `now`: when they were taken, in epoch seconds; default: their latest time."""
    return judge_rings((digest(trace) for trace in traces), now)


def judge_rings(rings: Iterable[Ring], now: float | None = None) -> CollectiveVerdict:
    """Return the verdict over digests of traces, in any order."""
    job = gather_traces(rings)
    if now is None:
        now = max((ring.time for ring in job.rings.values() if ring.time is not None), default=None)
    graph, roles = WaitGraph(), GroupRoles(job)
    found = [verdict for comm in job.comms for verdict in judge_group(comm, job, roles, graph, now)]
    if graph.wanted:
        graph.left.update(divergences(job, roles))
        wait_for_left(job, graph)
    found = [replace(communicator, origin=is_origin(communicator, graph)) for communicator in found]
    culprits, possible = culprits_of(job, graph, found)
    blamed = {culprit.rank for culprit in culprits}
    waiting = sorted(graph.pending - blamed)
    found.sort(key=lambda item: (item.state != "mismatch", -size(item.joined), item.pg, item.seq))
    return CollectiveVerdict(
        culprits=culprits,
        possible=as_ranges(possible),
        communicators=tuple(found[:GROUPS]),
        groups=len(found),
        pending=_pending(job, now),
        waiting=as_ranges(tuple(waiting)),
        seen=len(job.rings),
        world=job.world,
        gaps=tuple(job.gaps),
    )


def _pending(job: JobTraces, now: float | None) -> tuple[Pending, ...]:
    """Return the first unfinished operation of each lane and pair, with all ranks in it; the oldest first."""
    found: dict[tuple[int, int, str], list[tuple[int, float | None, float | None, int]]] = defaultdict(list)
    for index, comm in enumerate(job.comms):
        for rank, lane in comm.lanes.items():
            for wait in lane.waits[:1]:
                found[index, wait.seq, wait.op].append((rank, wait.created, wait.timeout_ms, wait.state))
            for pair in lane.pairs:
                if pair.first is not None:
                    op = f"{'recv' if pair.receives else 'send'} {pair.source}->{pair.destination}"
                    one = pair.first
                    found[index, one.seq, op].append((rank, one.created, one.timeout_ms, one.state))
    out = []
    for (index, seq, op), waits in found.items():
        comm = job.comms[index]
        made = min((created for _, created, _, _ in waits if created is not None), default=None)
        timeout = next((limit for _, _, limit, _ in waits if limit), None)
        age = None if now is None or made is None else max(0.0, now - made)
        started = sum(state == STARTED for *_, state in waits)
        ranks = as_ranges(tuple(sorted(rank for rank, *_ in waits)))
        out.append(Pending(comm.pg, comm.name, seq, op, ranks, started, age, timeout and timeout / 1e3))
    out.sort(key=lambda item: (-(item.age or 0.0), item.pg, item.seq, item.op))
    return tuple(out[:PENDING])
