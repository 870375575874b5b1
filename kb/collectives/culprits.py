"""Combines all communicators: which ranks are waited for (or disagree) and depend on no other such rank."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from kb.collectives.communicators import JobTraces, op_of
from kb.collectives.program_order import Divergence
from kb.collectives.result import Communicator, Culprit, Kind
from kb.collectives.trace import DONE, STARTED, QueuedOp, rank_at
from kb.collectives.wait_graph import WaitGraph, components

_SCORE: Mapping[Kind, float] = {
    "disagrees": 0.95,
    "missing": 0.9,
    "out_of_order": 0.9,
    "not_finished": 0.5,
    "not_started": 0.4,
}
_INFERRED = 0.9  # number of times, if the members of groups are unknown
_TIED = 0.5  # score of a disagreement without a majority
_FEW_PEERS = 0.75  # score of an order that differs from that of two others, or of earlier iterations


def is_origin(communicator: Communicator, graph: WaitGraph) -> bool:
    """Whether the group is stuck, and no operation that its ranks queued earlier holds them up."""
    if communicator.state != "stuck":
        return False
    ends = (-1, -1)
    ranks: Iterable[int | None] = (rank for part in communicator.joined for rank in part)
    if communicator.p2p:
        ends = _ends(communicator.op)
        ranks = (rank_at(communicator.members, ends[0]), rank_at(communicator.members, ends[1]))
    where = (communicator.pg, communicator.members, *ends)
    firsts = [graph.first.get(rank) for rank in ranks if rank is not None]
    return bool(firsts) and all(first is not None and first.where == where for first in firsts)


def _ends(op: str) -> tuple[int, int]:
    source, _, destination = op.rpartition(" ")[2].partition("->")
    return int(source), int(destination)


def culprits_of(
    job: JobTraces, graph: WaitGraph, found: Sequence[Communicator]
) -> tuple[tuple[Culprit, ...], tuple[int, ...]]:
    """Return the ranks that are waited for (or disagree) and wait for no culprit; and possible ones without a dump."""
    parts = components(graph.edges, [*graph.wanted, *graph.odd, *graph.unseen])
    of = {node: index for index, part in enumerate(parts) for node in part}
    asked = set(graph.wanted) | set(graph.odd)
    leads: list[bool] = []  # a component that leads to another one with culprits; sinks come first
    blames: list[bool] = []  # the same, ignoring ranks that gave no dump
    hot: list[bool] = []
    for index, part in enumerate(parts):
        onward = {of[to] for node in part for to in graph.edges.get(node, ())} - {index}
        leads.append(any(leads[item] or hot[item] for item in onward))
        blames.append(any(blames[item] or not asked.isdisjoint(parts[item]) for item in onward))
        hot.append(any(node in asked or node in graph.unseen for node in part))
    culprits: list[Culprit] = []
    origins = {rank for communicator in found if communicator.origin for ranks in communicator.joined for rank in ranks}
    if not any(
        lane.done > 0 or (lane.status and lane.status[2] > 0) for comm in job.comms for lane in comm.lanes.values()
    ):
        graph.held.clear()  # recorders that never record what finished
        origins.clear()
    for index, part in enumerate(parts):
        odd = not blames[index] and not graph.odd.keys().isdisjoint(
            part
        )  # whatever the ranks without a dump did, these disagree
        if hot[index] and (odd or not leads[index]):
            stuck = any(node in origins for node in part)
            culprits += _blamed(job, graph, [node for node in part if node in asked], stuck=stuck)
    possible = sorted(node for node in graph.unseen if not leads[of[node]])
    if not culprits and not possible:
        culprits = _by_state(job, found)
    culprits.sort(key=lambda item: (-item.score, -len(item.reasons), item.rank))
    return tuple(culprits), tuple(possible)


def _blamed(job: JobTraces, graph: WaitGraph, ranks: Sequence[int], *, stuck: bool) -> list[Culprit]:
    """Return the culprits of a cycle of waits: ranks that disagree, wait for no rank, or left the order.

    A rank that merely stopped gets everything finished that it queued before, because the others come that far. A rank
    in an operation that nobody finished is therefore not a source, unless the operation it is in first is finished by
    the others. `stuck`: these ranks hang in an operation that all of them joined, and no order of operations explains
    it.
    """
    odd = [rank for rank in ranks if rank in graph.odd]
    if odd:
        return [_odd(job, graph, rank) for rank in odd]
    free = [rank for rank in ranks if rank not in graph.blocked and (rank not in graph.held or _alone(graph, rank))]
    if free or stuck:
        return [_missing(job, graph, rank) for rank in free]
    ranks = [rank for rank in ranks if rank in graph.blocked]
    firsts = [(rank, graph.first.get(rank)) for rank in ranks]
    if any(first is not None and first.where not in graph.blocked[rank] for rank, first in firsts):
        return []  # the rank's first wait is in an operation that all joined: order does not explain it
    return _circle(job, graph, ranks)


def _circle(job: JobTraces, graph: WaitGraph, ranks: Sequence[int]) -> list[Culprit]:
    """Return the ranks that left their peers' order, among ranks that wait for each other in a cycle.

    If nothing shows which did, both of two ranks are named as candidates, and of more ranks none.
    """
    left = [rank for rank in ranks if rank in graph.left]
    sure = [rank for rank in left if graph.left[rank].by != "none"]
    if not sure and len(left) != 2 and len(ranks) != 2:
        return []
    return [_left_order(job, graph, rank) for rank in sure or (left if len(left) == 2 else ranks)]


def _left_order(job: JobTraces, graph: WaitGraph, rank: int) -> Culprit:
    divergence = graph.left.get(rank)
    reasons = [] if divergence is None else [_divergence_text(job, rank, divergence)]
    score = _SCORE["out_of_order"] * _TIED
    if divergence is None or divergence.by == "none":
        reasons.append(
            "two ranks wait for each other because one of them ran its operations in a different order; the dumps do not show which"
        )
    else:
        score = _SCORE["out_of_order"] if divergence.by == "peers" and divergence.peers > 2 else _FEW_PEERS
    missed = [] if divergence is None or divergence.instead is None else [_about(job, rank, divergence.instead)]
    found = _culprit(job, rank, "out_of_order", (*reasons, *_where(graph, rank)), graph, score=score, about=missed)
    if divergence is None or divergence.instead is None or divergence.by == "none":
        return found
    did, instead = (_op_reference(job, rank, step) for step in (divergence.did, divergence.instead))
    return replace(found, differs="order", ran=did, others=instead)


def _divergence_text(job: JobTraces, rank: int, divergence: Divergence) -> str:
    did = _op_reference(job, rank, divergence.did)
    if divergence.instead is None:
        return f"queued {did}, where {divergence.peers} ranks in the same position queued another operation"
    peers = f"{divergence.peers} rank{'s' * (divergence.peers != 1)} in the same position queued {_op_reference(job, rank, divergence.instead)}"
    return (
        f"queued {did}, where {peers}{', as all ranks did in earlier iterations' if divergence.by == 'rounds' else ''}"
    )


def _op_reference(job: JobTraces, rank: int, step: QueuedOp) -> str:
    title, op, seq = _about(job, rank, step)
    return f"{op} number {seq} of {title}"


def _about(job: JobTraces, rank: int, step: QueuedOp) -> tuple[str, str, int]:
    comm = job.home(rank, step.lane)
    return comm.title, "send or receive" if step.p2p else op_of(comm, job, step.seq) or "operation", step.seq


def _alone(graph: WaitGraph, rank: int) -> bool:
    first = graph.first.get(rank)
    return first is not None and first.alone


def _missing(job: JobTraces, graph: WaitGraph, rank: int) -> Culprit:
    wanted = graph.wanted[rank]
    groups = len({title for title, *_ in wanted})
    reasons = [f"is missing in {groups} process group{'s' * (groups != 1)} and waits for no missing rank itself"]
    ring = job.rings[rank]
    if rank in graph.pending and ring.oldest is not None:
        reasons.append(f"its {ring.oldest.op} number {ring.oldest.seq} never finished")
    return _culprit(job, rank, "missing", (*reasons, *_where(graph, rank)), graph)


def _odd(job: JobTraces, graph: WaitGraph, rank: int) -> Culprit:
    reasons = []
    about = []
    tied = True
    for comm, item in graph.odd[rank][:4]:
        ran = next((text for text, ranks in item.odd if rank in ranks), "")
        about.append((comm.title, ran.partition(" ")[0], item.seq))
        word = {-1: "; it seems to have skipped one", 1: "; it seems to have run one too many", 0: ""}[item.shift]
        reasons.append(f"{comm.title} number {item.seq}: {ran}, others {item.expected} ({item.what} differs{word})")
        tied = tied and item.tied
    reasons += [item.because for _, item in graph.odd[rank][:4] if item.because]
    if tied:
        reasons.append("neither side has a majority, so the dumps do not show which one is wrong")
    score = _TIED if tied else _SCORE["disagrees"]
    found = _culprit(job, rank, "disagrees", tuple(reasons), graph, score=score, about=about)
    first = graph.odd[rank][0][1]
    ran, others = (next((text for text, ranks in first.odd if (rank in ranks) is own), "") for own in (True, False))
    return replace(found, differs=first.what, ran=ran, others=others if first.tied else first.expected)


def _where(graph: WaitGraph, rank: int) -> list[str]:
    return [
        f"has not queued {op or 'operation'} number {seq} of {title}, in which {waiters} rank{'s wait' if waiters != 1 else ' waits'}"
        for title, op, seq, waiters in _most_waited(graph, rank)[:4]
    ]


def _culprit(
    job: JobTraces,
    rank: int,
    kind: Kind,
    reasons: tuple[str, ...],
    graph: WaitGraph,
    *,
    score: float | None = None,
    about: Sequence[tuple[str, str, int]] = (),
) -> Culprit:
    """A culprit. `about`: the groups, operations and numbers it concerns, if these are not the ones in which others miss it."""
    ring = job.rings[rank]
    waits = [*about, *((title, op, seq) for title, op, seq, _ in _most_waited(graph, rank))]
    _, op, seq = waits[0] if waits else ("", "", None)
    return Culprit(
        rank=rank,
        kind=kind,
        score=round((_SCORE[kind] if score is None else score) * (_INFERRED if ring.inferred else 1.0), 3),
        reasons=reasons,
        groups=tuple(dict.fromkeys(title for title, *_ in waits))[:16],
        op=op,
        seq=seq,
        source=ring.source,
        frames=ring.oldest.frames if ring.oldest else (),
    )


def _most_waited(graph: WaitGraph, rank: int) -> list[tuple[str, str, int, int]]:
    return sorted(graph.wanted.get(rank, ()), key=lambda item: (-item[3], item[0], item[2]))


def _by_state(job: JobTraces, found: Sequence[Communicator]) -> list[Culprit]:
    """Return the few ranks of a stuck group whose device did not start or finish what the others' did."""
    out: dict[int, Culprit] = {}
    comms = {(comm.pg, comm.members): comm for comm in job.comms}
    for communicator in found:
        states = communicator.states
        started, scheduled, completed = (states.get(name, 0) for name in ("started", "scheduled", "completed"))
        if communicator.p2p or communicator.state != "stuck":
            continue
        kind: Kind
        if completed > started + scheduled > 0:
            kind, code, text = "not_finished", None, "is unfinished on this rank but finished on the others"
        elif started > scheduled > 0:
            kind, code, text = "not_started", STARTED, "has not started on this rank but has on the others"
        else:
            continue
        comm = comms[communicator.pg, communicator.members]
        reason = f"{communicator.op} number {communicator.seq} of {comm.title} {text}"
        for rank, lane in comm.lanes.items():
            state = (
                lane.states[communicator.seq - lane.first] if 0 <= lane.first <= communicator.seq <= lane.last else DONE
            )
            if state < (code or DONE) and rank not in out:
                ring = job.rings[rank]
                frames = ring.oldest.frames if ring.oldest else ()
                out[rank] = Culprit(
                    rank,
                    kind,
                    _SCORE[kind],
                    (reason,),
                    (comm.title,),
                    communicator.op,
                    communicator.seq,
                    ring.source,
                    frames,
                )
    return list(out.values())
