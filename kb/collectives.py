"""Where a job hangs, by what its ranks' recorders say: who never joined, who is behind, who disagrees, who only waits.

Ranks wait for each other across process groups, so each group is judged first and then all of them together as a graph of
who waits for whom. An unfinished operation that a rank has not queued is an edge to that rank; the source is who is waited
for and waits for nobody. Nothing here is quadratic in ranks: groups stand in the graph as nodes.

What the recorder calls "enqueued" is counted after the call of the library returned: a rank that stands inside the call
looks as if it had not made it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from kb.model import CollectiveTrace, Frame, Gap
from kb.report import ranges
from kb.rings import DONE, STARTED, Lane, Members, Pair, Ring, Shape, as_ranges, at, contains, digest, indices, size

Kind = Literal["missing", "disagrees", "out_of_order", "not_finished", "not_started"]
CommState = Literal["missing", "stuck", "mismatch", "unseen"]

GROUPS = 256  # verdicts on communicators that are kept, the ones with most waiting ranks first
PENDING = 256
_SCORE: Mapping[Kind, float] = {
    "disagrees": 0.95,
    "missing": 0.9,
    "out_of_order": 0.6,
    "not_finished": 0.5,
    "not_started": 0.4,
}
_INFERRED = 0.9  # times that, where the members of groups are not told
_TIED = 0.5  # of a disagreement without a majority
_ONE_SIDED = frozenset(
    {"broadcast", "_broadcast_oop", "reduce", "_reduce_oop", "gather", "scatter"}
)  # one may finish alone


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Ranks that ran different operations under one number. `what`: "op", "size" or "dtype".

    `odd`: what they ran and who, those that differ from `expected`, which most ran; where no side is larger (`tied`) all.
    `shift`: -1 where the odd ones look as if they had skipped an operation, 1 as if they had made one too many.
    """

    seq: int
    what: Literal["op", "size", "dtype"]
    expected: str
    odd: tuple[tuple[str, tuple[int, ...]], ...]
    tied: bool = False
    shift: int = 0


@dataclass(frozen=True, slots=True)
class Communicator:
    """What became of one process group that has unfinished operations.

    `state`: "mismatch", "missing" (somebody has not queued number `seq`, others wait in it), "unseen" (only ranks without a
    dump may be missing) or "stuck" (all queued it, nobody gets on). `age` in seconds. `p2p`: sends and receives. `origin`: it
    is stuck, and nothing that its ranks queued before holds them: the fault is one of theirs, or of what links them.
    """

    pg: str
    name: str
    members: Members
    state: CommState
    seq: int
    op: str
    joined: Members
    missing: Members = ()
    unseen: Members = ()
    age: float | None = None
    p2p: bool = False
    inferred: bool = False
    mismatch: Mismatch | None = None
    origin: bool = False
    states: Mapping[str, int] = field(default_factory=dict)  # of number `seq`: scheduled, started, completed → ranks


@dataclass(frozen=True, slots=True)
class Culprit:
    """A rank that others wait for while it waits for nobody, or that differs. `score` from 0 to 1, `groups` by name."""

    rank: int
    kind: Kind
    score: float
    reasons: tuple[str, ...]
    groups: tuple[str, ...] = ()
    source: str = ""
    frames: tuple[Frame, ...] = ()  # of its first unfinished operation, innermost first


@dataclass(frozen=True, slots=True)
class Pending:
    """An unfinished operation and the ranks that stand in it. `age` and `timeout` in seconds."""

    pg: str
    name: str
    seq: int
    op: str
    ranks: Members
    started: int
    age: float | None = None
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class CollectiveVerdict:
    """What the recorders of a job say together.

    `possible`: ranks without a dump (or whose dump does not tell) that others may wait for; they are no culprits. `waiting`:
    ranks with unfinished operations that are none either. `groups` counts the communicators with unfinished operations, of which
    `communicators` keeps at most 256.
    """

    culprits: tuple[Culprit, ...] = ()
    possible: Members = ()
    communicators: tuple[Communicator, ...] = ()
    groups: int = 0
    pending: tuple[Pending, ...] = ()
    waiting: Members = ()
    seen: int = 0
    world: int | None = None
    gaps: tuple[Gap, ...] = ()


def judge(traces: Iterable[CollectiveTrace], now: float | None = None) -> CollectiveVerdict:
    """The verdict over traces. `now`: when they were taken (seconds since the epoch); without it, the latest stamp in them."""
    return judge_rings((digest(one) for one in traces), now)


def judge_rings(rings: Iterable[Ring], now: float | None = None) -> CollectiveVerdict:
    """The verdict over digests of traces, in any order."""
    job = _gathered(rings)
    if now is None:
        now = max((one.time for one in job.rings.values() if one.time is not None), default=None)
    graph = _Graph()
    found = [verdict for comm in job.comms for verdict in _judged(comm, job, graph, now)]
    found = [replace(one, origin=_is_origin(one, graph)) for one in found]
    culprits, possible = _culprits(job, graph, found)
    blamed = {one.rank for one in culprits}
    waiting = sorted(graph.pending - blamed)
    found.sort(key=lambda one: (one.state != "mismatch", -size(one.joined), one.pg, one.seq))
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


def spans(ranks: Iterable[int], most: int = 12) -> str:
    """Ranks as people write them: "0-6,8"; cut after so many parts."""
    parts = ranges(ranks).split(",")
    text = ",".join(parts[:most])
    return f"{text},…" if len(parts) > most else text


# --- all rings by communicator -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Comm:
    """A communicator: its lanes by global rank. `members` empty: not known."""

    pg: str
    name: str
    members: Members
    inferred: bool
    lanes: dict[int, Lane] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return (
            f"{self.name} ({self.pg})" if self.name and self.name not in {"undefined", self.pg} else f"group {self.pg}"
        )


@dataclass(slots=True)
class _Job:
    """Everything that was recorded, by rank and by communicator."""

    rings: dict[int, Ring] = field(default_factory=dict)
    comms: list[_Comm] = field(default_factory=list)
    kinds: dict[Shape, int] = field(default_factory=dict)
    tables: dict[int, list[int]] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)
    world: int | None = None
    absent: list[int] = field(default_factory=list)  # ranks of the world without a dump

    def gap(self, code: str, reason: str, *, got: str = "", rules_out: str = "") -> None:
        self.gaps.append(Gap(code, "flight_recorder", reason, scope="job", got=got, rules_out=rules_out))


def _gathered(rings: Iterable[Ring]) -> _Job:
    job = _Job()
    nameless = twice = 0
    for ring in sorted(rings, key=lambda one: (one.source, one.time or 0.0)):
        if ring.rank is None:
            nameless += 1
            continue
        other = job.rings.get(ring.rank)
        twice += other is not None
        if other is None or (ring.time or 0) > (other.time or 0):
            job.rings[ring.rank] = ring
    if nameless:
        job.gap("dump_rank_unknown", f"{nameless} dumps of unknown rank were left out")
    if twice:
        job.gap("dump_duplicate", f"{twice} ranks have two dumps; the later one of each counts")
    job.rings = dict(sorted(job.rings.items()))
    _sorted_by_group(job)
    _world(job)
    _shared_shapes(job)
    if any(ring.backend == "gloo" for ring in job.rings.values()):
        reason = "gloo records no sends and receives"
        job.gap(
            "p2p_not_recorded", reason, rules_out="a rank that stands in a send or receive looks as if it had stopped"
        )
    return job


def _sorted_by_group(job: _Job) -> None:
    told: dict[tuple[str, Members], _Comm] = {}
    open_: dict[str, list[tuple[int, Lane]]] = defaultdict(list)
    for rank, ring in job.rings.items():
        for lane in ring.lanes:
            if not lane.members:
                open_[lane.pg].append((rank, lane))
                continue
            comm = told.get((lane.pg, lane.members))
            if comm is None:
                comm = told[lane.pg, lane.members] = _Comm(lane.pg, lane.name, lane.members, inferred=False)
            comm.lanes[rank] = lane
    by_name: dict[str, list[_Comm]] = defaultdict(list)
    for comm in told.values():
        by_name[comm.pg].append(comm)
    for pg, lanes in open_.items():
        _placed(job, pg, lanes, by_name.get(pg, []), told)
    job.comms = sorted(told.values(), key=lambda one: (one.pg, one.members and one.members[0].start))
    if any(one.inferred for one in job.comms):
        reason = "members of process groups were worked out from who recorded operations in them"
        job.gap("groups_inferred", reason, rules_out="a rank that never used a group is not known to belong to it")


def _placed(
    job: _Job,
    pg: str,
    lanes: Sequence[tuple[int, Lane]],
    known: Sequence[_Comm],
    told: dict[tuple[str, Members], _Comm],
) -> None:
    """Lanes whose dump does not tell the members: into a group of that name that others tell, else a group of their own."""
    alone: list[tuple[int, Lane]] = []
    for rank, lane in lanes:
        home = next((comm for comm in known[:64] if contains(comm.members, rank)), None)
        if home is None:
            alone.append((rank, lane))
        else:
            home.lanes[rank] = lane
    if not alone:
        return
    name = next((lane.name for _, lane in alone if lane.name), "")
    ranks = tuple(rank for rank, _ in alone)
    if name == "default_pg" or pg == "0":
        ranks = tuple(_everybody(job))
    comm = told[pg, as_ranges(ranks)] = _Comm(pg, name, as_ranges(ranks), inferred=True)
    comm.lanes.update(alone)


def _everybody(job: _Job) -> Iterable[int]:
    top = max(job.rings, default=-1)
    return range(top + 1) if top < 4 * len(job.rings) + 1024 else job.rings


def _world(job: _Job) -> None:
    world = [one for one in job.comms if one.name == "default_pg"] or job.comms
    members: Members = max((one.members for one in world), key=size, default=())
    if not members:
        return
    job.world = size(members)
    job.absent = [rank for part in members for rank in part if rank not in job.rings]
    if job.absent:
        got = f"{job.world - len(job.absent)} of {job.world}"
        reason = f"no readable dump of {len(job.absent)} ranks: {spans(job.absent)}"
        job.gap("ranks_without_dump", reason, got=got, rules_out="whether these ranks joined what others wait in")


def _shared_shapes(job: _Job) -> None:
    """For every ring, its shape indices in the numbers that all ranks share."""
    cache: dict[tuple[Shape, ...], list[int]] = {}
    job.kinds[Shape("")] = 0
    for rank, ring in job.rings.items():
        table = cache.get(ring.shapes)
        if table is None:
            table = [job.kinds.setdefault(shape, len(job.kinds)) for shape in ring.shapes]
            if len(cache) < 1024:
                cache[ring.shapes] = table
        job.tables[rank] = table


# --- one communicator --------------------------------------------------------------------------------------------------


_Where = tuple[str, Members, int, int]  # a group, and of a send or receive its ends


@dataclass(frozen=True, slots=True)
class _First:
    """The unfinished operation that a rank queued first: when, in what (group, ends of a pair), and whether others finished it."""

    created: float
    where: _Where
    alone: bool = False


@dataclass(slots=True)
class _Graph:
    """Who waits for whom. Ranks are nodes from 0, groups' nodes count down from -1."""

    edges: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    blocked: dict[int, set[_Where]] = field(
        default_factory=lambda: defaultdict(set)
    )  # who waits for whom has not joined, in what
    wanted: dict[int, list[tuple[str, str, int, int]]] = field(default_factory=lambda: defaultdict(list))
    odd: dict[int, list[tuple[_Comm, Mismatch]]] = field(default_factory=lambda: defaultdict(list))
    held: set[int] = field(default_factory=set)  # ranks that stand in something which nobody finished
    first: dict[int, _First] = field(default_factory=dict)  # of each rank what it stands in first
    ahead: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    pending: set[int] = field(default_factory=set)
    unseen: set[int] = field(default_factory=set)
    shared: dict[Members, int] = field(default_factory=dict)
    made: int = 0

    def stands(self, rank: int, first: _First) -> None:
        """A rank has an unfinished operation; of several the one that it queued first counts."""
        known = self.first.get(rank)
        if known is None or first.created < known.created:
            self.first[rank] = first

    def node(self) -> int:
        self.made += 1
        return -self.made

    def nodes_of(self, absent: Sequence[int]) -> int:
        """One node for ranks without a dump, the same for the same ranks."""
        key = as_ranges(tuple(absent))
        if key not in self.shared:
            self.shared[key] = self.node()
            self.edges[self.shared[key]] += absent
            self.unseen.update(absent)
        return self.shared[key]


@dataclass(frozen=True, slots=True)
class _Count:
    """How far one rank is in a group: number last queued, number last finished."""

    queued: int
    done: int


def _judged(comm: _Comm, job: _Job, graph: _Graph, now: float | None) -> Iterator[Communicator]:
    p2p = any(lane.pairs for lane in comm.lanes.values())
    if p2p:
        yield from _judge_pairs(comm, job, graph, now)
    counts = _counts(comm, job, p2p=p2p)
    pending = {rank for rank, one in counts.items() if one.done < one.queued}
    if not pending:
        return
    graph.pending |= pending
    mismatch = _mismatch(comm, job, counts)
    inside = _inside(comm, counts)
    _stand(comm, counts, inside, graph)
    seq, missing = _levels(comm, counts, inside, graph)
    absent = _unseen(comm, job, counts) if not missing else []
    if not missing:
        seq = min(counts[rank].done for rank in pending) + 1
    joined = [rank for rank in pending if counts[rank].queued >= seq]
    if inside or not missing:
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
        op=_op(comm, job, seq),
        joined=as_ranges(tuple(sorted(joined))),
        missing=as_ranges(tuple(missing)),
        unseen=as_ranges(tuple(absent)),
        age=_age(comm, seq, now),
        inferred=comm.inferred,
        mismatch=mismatch,
        states=_states(comm, counts, seq),
    )


def _stand(comm: _Comm, counts: Mapping[int, _Count], inside: Collection[int], graph: _Graph) -> None:
    """Note what the ranks stand in, and for whom it is something that nobody finished."""
    top = max(one.done for one in counts.values())
    where = (comm.pg, comm.members, -1, -1)
    for rank, one in counts.items():
        if one.done >= one.queued:
            continue
        if rank in inside or one.queued > top:
            graph.held.add(rank)
        lane = comm.lanes.get(rank)
        made = lane.waits[0].created if lane is not None and lane.waits else None
        if made is not None:
            graph.stands(rank, _First(made, where, rank not in inside))


def _unseen(comm: _Comm, job: _Job, counts: Mapping[int, _Count]) -> Sequence[int]:
    """Members whose dump is missing or tells nothing of the group; where members were worked out, anybody without a dump."""
    if comm.inferred:
        return job.absent
    return [rank for part in comm.members for rank in part if rank not in counts]


def _counts(comm: _Comm, job: _Job, *, p2p: bool) -> dict[int, _Count]:
    """How far each rank is that this can be told of. A rank that counts all its groups and not this one never used it."""
    out: dict[int, _Count] = {}
    for rank, lane in comm.lanes.items():
        status = None if p2p else lane.status
        queued = max(lane.last, status[0] if status else -1)
        if queued < 0 and (p2p or (status is None and not job.rings[rank].counts_all)):
            continue
        done = max(lane.done, status[2] if status else -1, lane.waits[0].seq - 1 if lane.waits else -1, 0)
        out[rank] = _Count(max(queued, 0), min(done, max(queued, 0)))
    if not p2p and not comm.inferred:
        for part in comm.members:
            for rank in part:
                if rank not in comm.lanes and rank in job.rings and job.rings[rank].counts_all:
                    out[rank] = _Count(0, 0)
    return out


def _inside(comm: _Comm, counts: Mapping[int, _Count]) -> set[int]:
    """Ranks that stand in an operation which nobody finished: that they queued no later one says nothing."""
    finished = sorted(one.done for one in counts.values())
    top = finished[-1]
    middle = finished[len(finished) // 2]
    out: set[int] = set()
    names: dict[int, bool] = {}
    for rank, one in counts.items():
        if one.done >= one.queued:
            continue
        first = one.done + 1
        if first not in names:
            names[first] = _name_of(comm, first) in _ONE_SIDED
        if first > (middle if names[first] else top):
            out.add(rank)
    return out


def _levels(comm: _Comm, counts: Mapping[int, _Count], inside: Collection[int], graph: _Graph) -> tuple[int, list[int]]:
    """Edges from who waits to who has not queued; the first number that is not queued by all, and who has not."""
    by_queued: dict[int, list[int]] = defaultdict(list)
    for rank, one in counts.items():
        by_queued[one.queued].append(rank)
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
    return seq, _wanted(comm, counts, (seq, late), graph)


def _wanted(comm: _Comm, counts: Mapping[int, _Count], late: tuple[int, list[int]], graph: _Graph) -> list[int]:
    """Note who of the late ones somebody waits for, and weigh who is the odd one: the few late, or the few ahead."""
    seq, ranks = late
    ahead = [rank for rank, one in counts.items() if one.queued >= seq and one.done < one.queued]
    top = max(counts[rank].queued for rank in ahead)
    missing = sorted(rank for rank in ranks if counts[rank].queued < top)
    everybody = len(ahead) + len(missing)
    for rank in missing:
        after = counts[rank].queued + 1
        graph.wanted[rank].append((comm.title, _name_of(comm, after), after, len(ahead)))
        graph.ahead[rank] += len(ahead) / everybody
    if len(missing) > len(ahead):  # the few that went ahead are as odd as the many that did not
        for rank in ahead:
            graph.ahead[rank] += len(missing) / everybody
    return missing


def _clustered(counts: Mapping[int, _Count], absent: Sequence[int], graph: _Graph) -> None:
    """All who stand in one operation that nobody gets out of depend on each other, and on who gave no dump."""
    stuck = [rank for rank, one in counts.items() if one.done < one.queued]
    first = min(counts[rank].done for rank in stuck) + 1
    node = graph.node()
    for rank in stuck:
        if counts[rank].done < first <= counts[rank].queued:
            graph.edges[rank].append(node)
            graph.edges[node].append(rank)
    if absent:
        graph.edges[node].append(graph.nodes_of(absent))


def _judge_pairs(comm: _Comm, job: _Job, graph: _Graph, now: float | None) -> Iterator[Communicator]:
    """Sends and receives: for every one that pends, whether the other side has its half."""
    halves = {
        (rank, one.source, one.destination, one.receives): one
        for rank, lane in comm.lanes.items()
        for one in lane.pairs
    }
    for (rank, *_), one in halves.items():
        if not one.pending or one.first is None:
            continue
        graph.pending.add(rank)
        graph.held.add(rank)
        if one.first.created is not None:
            graph.stands(rank, _First(one.first.created, (comm.pg, comm.members, one.source, one.destination)))
        index = one.source if one.receives else one.destination
        other = at(comm.members, index)
        if other is None or other == rank:
            continue
        verdict = _half(
            comm, job, graph, (rank, other, one), halves.get((other, one.source, one.destination, not one.receives))
        )
        if verdict is None:
            continue
        missing, unseen, mismatch = verdict
        yield Communicator(
            pg=comm.pg,
            name=comm.name,
            members=comm.members,
            state="mismatch" if mismatch else "missing" if missing else "unseen" if unseen else "stuck",
            seq=one.first.seq,
            op=f"{'recv' if one.receives else 'send'} {one.source}->{one.destination}",
            joined=as_ranges((rank,)),
            missing=as_ranges(missing),
            unseen=as_ranges(unseen),
            age=None if now is None or one.first.created is None else max(0.0, now - one.first.created),
            p2p=True,
            inferred=comm.inferred,
            mismatch=mismatch,
        )


def _half(
    comm: _Comm, job: _Job, graph: _Graph, own: tuple[int, int, Pair], theirs: Pair | None
) -> tuple[tuple[int, ...], tuple[int, ...], Mismatch | None] | None:
    """Who is missing, unseen, or at odds in one pending send or receive; None where the other side tells it already."""
    rank, other, one = own
    if other not in job.rings:
        graph.edges[rank].append(other)
        graph.unseen.add(other)
        return (), (other,), None
    have = theirs.pending if theirs else 0
    told = theirs is not None and one.whole and theirs.whole and one.total <= theirs.total
    lacks = not have and not told  # where they have one pending, it is the other half of our first
    if lacks:
        graph.edges[rank].append(other)
        graph.blocked[rank].add((comm.pg, comm.members, one.source, one.destination))
        word = "send" if one.receives else "recv"
        seq = one.first.seq if one.first else -1
        graph.wanted[other].append((comm.title, f"{word} {one.source}->{one.destination}", seq, 1))
        graph.ahead[other] += 0.5
        return (other,), (), None
    graph.edges[rank].append(other)
    graph.edges[other].append(rank)
    if theirs is None or one.receives:
        return None
    a, b = job.rings[rank].shapes[one.shape], job.rings[other].shapes[theirs.shape]
    if one.pending == theirs.pending and a != b and theirs.pending:
        what: Literal["size", "dtype"] = "dtype" if a.inputs == b.inputs else "size"
        odd = ((_shown(a), (rank,)), (_shown(b), (other,)))
        return (), (), Mismatch(one.first.seq if one.first else -1, what, _shown(a), odd, tied=True)
    return (), (), None


def _mismatch(comm: _Comm, job: _Job, counts: Mapping[int, _Count]) -> Mismatch | None:
    """The first number under which ranks ran different things, where the group got stuck there or behind it."""
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
            return _told_apart(job, (low + place, place), here, ran, counts)
    return None


def _told_apart(
    job: _Job,
    where: tuple[int, int],
    here: Mapping[int, Sequence[int]],
    ran: Mapping[tuple[int, ...], Sequence[int]],
    counts: Mapping[int, _Count],
) -> Mismatch | None:
    seq, place = where
    shapes = list(job.kinds)
    order = sorted(here, key=lambda kind: (-len(here[kind]), min(here[kind])))
    tied = len(here[order[0]]) == len(here[order[1]])
    expected = shapes[order[0]]
    odd = [kind for kind in order if tied or kind != order[0]]
    what = _difference(expected, shapes[order[1]])
    if what != "op" and all(one.done >= seq for one in counts.values()):
        return None  # it worked, so it is how this job is written
    main = next(column for column, ranks in ran.items() if column[place] == order[0])
    other = next(column for column, ranks in ran.items() if column[place] == order[1])
    return Mismatch(
        seq=seq,
        what=what,
        expected=_shown(expected),
        odd=tuple((_shown(shapes[kind]), tuple(sorted(here[kind]))) for kind in odd[:16]),
        tied=tied,
        shift=0 if tied else _shift(main, other, place),
    )


def _difference(a: Shape, b: Shape) -> Literal["op", "size", "dtype"]:
    if a.op != b.op:
        return "op"
    return "size" if (a.inputs, a.outputs) != (b.inputs, b.outputs) else "dtype"


def _shift(main: Sequence[int], other: Sequence[int], place: int) -> int:
    """-1 where from here on `other` runs what `main` runs one later, 1 where one earlier, else 0."""
    length = min(16, len(main) - place - 1)
    if length < 2:
        return 0
    if list(other[place : place + length]) == list(main[place + 1 : place + 1 + length]):
        return -1
    if list(main[place : place + length]) == list(other[place + 1 : place + 1 + length]):
        return 1
    return 0


def _shown(shape: Shape) -> str:
    sizes = " -> ".join(str([list(one) for one in part]) for part in (shape.inputs, shape.outputs) if part)
    return " ".join(part for part in (shape.op, sizes[:120], ",".join(shape.dtypes)[:60]) if part)


def _name_of(comm: _Comm, seq: int) -> str:
    """The operation that some rank recorded under a number; of the first waits, which every lane keeps."""
    for lane in comm.lanes.values():
        for wait in lane.waits:
            if wait.seq == seq:
                return wait.op
    return ""


def _op(comm: _Comm, job: _Job, seq: int) -> str:
    for rank, lane in comm.lanes.items():
        if lane.first <= seq <= lane.last and lane.first >= 0:
            index = indices(lane)[seq - lane.first]
            if index:
                return job.rings[rank].shapes[index].op
    return ""


def _age(comm: _Comm, seq: int, now: float | None) -> float | None:
    made = [
        wait.created
        for lane in comm.lanes.values()
        for wait in lane.waits
        if wait.seq >= seq and wait.created is not None
    ]
    return None if now is None or not made else max(0.0, now - min(made))


def _states(comm: _Comm, counts: Mapping[int, _Count], seq: int) -> dict[str, int]:
    names = ("", "scheduled", "started", "completed")
    return {
        name: n for name, n in Counter(names[_state_at(comm, counts, rank, seq)] for rank in counts).items() if name
    }


def _state_at(comm: _Comm, counts: Mapping[int, _Count], rank: int, seq: int) -> int:
    lane = comm.lanes.get(rank)
    if lane is not None and 0 <= lane.first <= seq <= lane.last:
        return lane.states[seq - lane.first]
    one = counts[rank]
    return DONE if one.done >= seq else 0


# --- all together ------------------------------------------------------------------------------------------------------


def _is_origin(one: Communicator, graph: _Graph) -> bool:
    if one.state != "stuck":
        return False
    ends = (-1, -1)
    ranks: Iterable[int | None] = (rank for part in one.joined for rank in part)
    if one.p2p:
        ends = _ends(one.op)
        ranks = (at(one.members, ends[0]), at(one.members, ends[1]))
    where = (one.pg, one.members, *ends)
    firsts = [graph.first.get(rank) for rank in ranks if rank is not None]
    return bool(firsts) and all(first is not None and first.where == where for first in firsts)


def _ends(op: str) -> tuple[int, int]:
    source, _, destination = op.rpartition(" ")[2].partition("->")
    return int(source), int(destination)


def _culprits(job: _Job, graph: _Graph, found: Sequence[Communicator]) -> tuple[tuple[Culprit, ...], tuple[int, ...]]:
    """Who is waited for (or at odds) and depends on nobody else who is; and the ranks without a dump of which that may hold."""
    parts = _components(graph.edges, [*graph.wanted, *graph.odd, *graph.unseen])
    of = {node: index for index, part in enumerate(parts) for node in part}
    asked = set(graph.wanted) | set(graph.odd)
    leads: list[bool] = []  # a component leads on to another one that has somebody to blame; sinks come first
    hot: list[bool] = []
    for index, part in enumerate(parts):
        onward = {of[to] for node in part for to in graph.edges.get(node, ())} - {index}
        leads.append(any(leads[one] or hot[one] for one in onward))
        hot.append(any(node in asked or node in graph.unseen for node in part))
    culprits: list[Culprit] = []
    origins = {rank for one in found if one.origin for ranks in one.joined for rank in ranks}
    if not any(
        lane.done > 0 or (lane.status and lane.status[2] > 0) for comm in job.comms for lane in comm.lanes.values()
    ):
        graph.held.clear()  # recorders that never tell what finished
        origins.clear()
    for index, part in enumerate(parts):
        if hot[index] and not leads[index]:
            stuck = any(node in origins for node in part)
            culprits += _blamed(job, graph, [node for node in part if node in asked], stuck=stuck)
    possible = sorted(node for node in graph.unseen if not leads[of[node]])
    if not culprits and not possible:
        culprits = _by_state(job, found)
    culprits.sort(key=lambda one: (-one.score, -len(one.reasons), one.rank))
    return tuple(culprits), tuple(possible)


def _blamed(job: _Job, graph: _Graph, ranks: Sequence[int], *, stuck: bool) -> list[Culprit]:
    """Of ranks that depend on each other: those at odds; else those that wait for nobody; else who started the circle.

    A rank that merely stopped gets all finished that it queued before, for the others come so far. One that stands in
    something that nobody finished is therefore no source, unless what it stands in first is finished by the others.
    `stuck`: these ranks hang in an operation that all of them joined, and no order of operations explains it.
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
        return []  # somebody stands first in something that all joined: it is no matter of order
    most = max((graph.ahead[rank] for rank in ranks), default=0.0)
    circle = [rank for rank in ranks if graph.ahead[rank] >= 0.75 * most]
    reason = "ranks wait for each other in a circle: they ran operations in different orders, and this one differs most"
    return [_culprit(job, rank, "out_of_order", (reason, *_where(graph, rank)), graph) for rank in circle]


def _alone(graph: _Graph, rank: int) -> bool:
    first = graph.first.get(rank)
    return first is not None and first.alone


def _missing(job: _Job, graph: _Graph, rank: int) -> Culprit:
    wanted = graph.wanted[rank]
    groups = len({title for title, *_ in wanted})
    reasons = [f"is missing in {groups} process group{'s' * (groups != 1)} and waits itself for nobody who is missing"]
    ring = job.rings[rank]
    if rank in graph.pending and ring.oldest is not None:
        reasons.append(f"its {ring.oldest.op} number {ring.oldest.seq} never finished")
    return _culprit(job, rank, "missing", (*reasons, *_where(graph, rank)), graph)


def _odd(job: _Job, graph: _Graph, rank: int) -> Culprit:
    reasons = []
    tied = True
    for comm, one in graph.odd[rank][:4]:
        ran = next((text for text, ranks in one.odd if rank in ranks), "")
        word = {-1: "; as if it had skipped one", 1: "; as if it had made one too many", 0: ""}[one.shift]
        reasons.append(f"{comm.title} number {one.seq}: {ran}, others {one.expected} ({one.what} differs{word})")
        tied = tied and one.tied
    if tied:
        reasons.append("no side is the larger: which one is wrong cannot be told from the dumps")
    score = _TIED if tied else _SCORE["disagrees"]
    groups = tuple(dict.fromkeys(comm.title for comm, _ in graph.odd[rank]))
    return _culprit(job, rank, "disagrees", tuple(reasons), graph, score=score, groups=groups)


def _where(graph: _Graph, rank: int) -> list[str]:
    wanted = sorted(graph.wanted[rank], key=lambda one: (-one[3], one[0], one[2]))
    return [
        f"has not queued {op or 'operation'} number {seq} of {title}, in which {waiters} rank{'s' * (waiters != 1)} wait"
        for title, op, seq, waiters in wanted[:4]
    ]


def _culprit(
    job: _Job,
    rank: int,
    kind: Kind,
    reasons: tuple[str, ...],
    graph: _Graph,
    *,
    score: float | None = None,
    groups: tuple[str, ...] = (),
) -> Culprit:
    ring = job.rings.get(rank)
    return Culprit(
        rank=rank,
        kind=kind,
        score=round((_SCORE[kind] if score is None else score) * (_INFERRED if ring and ring.inferred else 1.0), 3),
        reasons=reasons,
        groups=groups or tuple(dict.fromkeys(title for title, *_ in graph.wanted.get(rank, ())))[:16],
        source=ring.source if ring else "",
        frames=ring.oldest.frames if ring and ring.oldest else (),
    )


def _by_state(job: _Job, found: Sequence[Communicator]) -> list[Culprit]:
    """Everybody joined and nobody gets on: the few whose device did not start, or not finish, what the others did."""
    out: dict[int, Culprit] = {}
    comms = {(comm.pg, comm.members): comm for comm in job.comms}
    for one in found:
        states = one.states
        started, scheduled, completed = (states.get(name, 0) for name in ("started", "scheduled", "completed"))
        if one.p2p or one.state != "stuck":
            continue
        kind: Kind
        if completed > started + scheduled > 0:
            kind, code, text = "not_finished", None, "is unfinished here and finished on the other ranks"
        elif started > scheduled > 0:
            kind, code, text = "not_started", STARTED, "has not started here and has on the other ranks"
        else:
            continue
        comm = comms[one.pg, one.members]
        reason = f"{one.op} number {one.seq} of {comm.title} {text}"
        for rank, lane in comm.lanes.items():
            state = lane.states[one.seq - lane.first] if 0 <= lane.first <= one.seq <= lane.last else DONE
            if state < (code or DONE) and rank not in out:
                ring = job.rings[rank]
                frames = ring.oldest.frames if ring.oldest else ()
                out[rank] = Culprit(rank, kind, _SCORE[kind], (reason,), (comm.title,), ring.source, frames)
    return list(out.values())


def _components(edges: Mapping[int, Sequence[int]], roots: Iterable[int]) -> list[list[int]]:
    """Strongly connected components of what can be reached from roots, those that lead nowhere first (Tarjan, no recursion)."""
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    on: set[int] = set()
    stack: list[int] = []
    out: list[list[int]] = []
    for root in roots:
        if root in number:
            continue
        work: list[tuple[int, Iterator[int]]] = [(root, iter(edges.get(root, ())))]
        number[root] = low[root] = len(number)
        stack.append(root)
        on.add(root)
        while work:
            node, onward = work[-1]
            for to in onward:
                if to not in number:
                    number[to] = low[to] = len(number)
                    stack.append(to)
                    on.add(to)
                    work.append((to, iter(edges.get(to, ()))))
                    break
                if to in on:
                    low[node] = min(low[node], number[to])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == number[node]:
                    part: list[int] = []
                    while not part or part[-1] != node:
                        part.append(stack.pop())
                        on.discard(part[-1])
                    out.append(part)
    return out


def _pending(job: _Job, now: float | None) -> tuple[Pending, ...]:
    """The first unfinished operation of each lane and pair, ranks in the same one together; the oldest first."""
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
    out.sort(key=lambda one: (-(one.age or 0.0), one.pg, one.seq, one.op))
    return tuple(out[:PENDING])
