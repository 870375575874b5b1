"""All rings of a job by communicator, and how far each rank got in each of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kb.collectives.clock_skew import corrected, offsets
from kb.collectives.result import title
from kb.collectives.trace import GroupLane, Members, OpShape, Ring, as_ranges, contains, shape_at, size
from kb.model import Gap
from kb.report import short_ranges


@dataclass(slots=True)
class GroupTraces:
    """A communicator: its lanes by global rank. `members` empty: unknown."""

    pg: str
    name: str
    members: Members
    inferred: bool
    lanes: dict[int, GroupLane] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Its name for people."""
        return title(self.pg, self.name)


@dataclass(slots=True)
class JobTraces:
    """Everything that was recorded, by rank and by communicator."""

    rings: dict[int, Ring] = field(default_factory=dict)
    comms: list[GroupTraces] = field(default_factory=list)
    kinds: dict[OpShape, int] = field(default_factory=dict)
    tables: dict[int, list[int]] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)
    world: int | None = None
    absent: list[int] = field(default_factory=list)  # ranks of the world without a dump

    _homes: dict[tuple[int, str], GroupTraces] = field(default_factory=dict)

    def home(self, rank: int, lane: int) -> GroupTraces:
        """Return the communicator of a rank's lane."""
        if not self._homes:
            self._homes = {(item, lane.pg): comm for comm in self.comms for item, lane in comm.lanes.items()}
        return self._homes[rank, self.rings[rank].lanes[lane].pg]

    def gap(self, code: str, reason: str, *, got: str = "", rules_out: str = "") -> None:
        """Record the gaps of the dumps together."""
        self.gaps.append(Gap(code, "flight_recorder", reason, scope="job", got=got, rules_out=rules_out))


def gather_traces(rings: Iterable[Ring]) -> JobTraces:
    """Return the rings of a job, one per rank, by communicator."""
    job = JobTraces()
    nameless = twice = 0
    for ring in sorted(rings, key=lambda item: (item.source, item.time or 0.0)):
        if ring.rank is None:
            nameless += 1
            continue
        other = job.rings.get(ring.rank)
        twice += other is not None
        if other is None or (ring.time or 0) > (other.time or 0):
            job.rings[ring.rank] = ring
    if nameless:
        job.gap("dump_rank_unknown", f"{nameless} dumps with an unknown rank were skipped")
    if twice:
        job.gap("dump_duplicate", f"{twice} ranks have two dumps; the later one is used")
    job.rings = dict(sorted(job.rings.items()))
    _set_right(job)
    _sorted_by_group(job)
    _world(job)
    _shared_shapes(job)
    if any(ring.backend == "gloo" for ring in job.rings.values()):
        reason = "gloo records no sends and receives"
        job.gap("p2p_not_recorded", reason, rules_out="a rank in a send or receive looks as if it had stopped")
    return job


def _set_right(job: JobTraces) -> None:
    """The rings with timestamps of skewed clocks converted to the clocks of the others."""
    apart = offsets(job.rings)
    if apart:
        for rank, ahead in apart.items():
            job.rings[rank] = corrected(job.rings[rank], ahead)
        worst = max(apart.values(), key=abs)
        reason = f"clocks of ranks {short_ranges(apart)} differ from the others by up to {worst:+.0f} s; corrected"
        job.gap("clocks_apart", reason, got=f"{len(apart)} of {len(job.rings)}")


def _sorted_by_group(job: JobTraces) -> None:
    groups: dict[tuple[str, Members], GroupTraces] = {}
    open_: dict[str, list[tuple[int, GroupLane]]] = defaultdict(list)
    for rank, ring in job.rings.items():
        for lane in ring.lanes:
            if not lane.members:
                open_[lane.pg].append((rank, lane))
                continue
            comm = groups.get((lane.pg, lane.members))
            if comm is None:
                comm = groups[lane.pg, lane.members] = GroupTraces(lane.pg, lane.name, lane.members, inferred=False)
            comm.lanes[rank] = lane
    by_name: dict[str, list[GroupTraces]] = defaultdict(list)
    for comm in groups.values():
        by_name[comm.pg].append(comm)
    for pg, lanes in open_.items():
        _placed(job, pg, lanes, by_name.get(pg, []), groups)
    job.comms = sorted(
        groups.values(),
        key=lambda group_traces: (group_traces.pg, group_traces.members and group_traces.members[0].start),
    )
    if any(group_traces.inferred for group_traces in job.comms):
        reason = "the members of process groups were inferred from the ranks that recorded operations in them"
        job.gap("groups_inferred", reason, rules_out="a rank that never used a group is not known to be a member")


def _placed(
    job: JobTraces,
    pg: str,
    lanes: Sequence[tuple[int, GroupLane]],
    known: Sequence[GroupTraces],
    told: dict[tuple[str, Members], GroupTraces],
) -> None:
    """Assign lanes whose dump does not list the members: to a group of that name in other dumps, else to a group of their own."""
    alone: list[tuple[int, GroupLane]] = []
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
    comm = told[pg, as_ranges(ranks)] = GroupTraces(pg, name, as_ranges(ranks), inferred=True)
    comm.lanes.update(alone)


def _everybody(job: JobTraces) -> Iterable[int]:
    top = max(job.rings, default=-1)
    return range(top + 1) if top < 4 * len(job.rings) + 1024 else job.rings


def _world(job: JobTraces) -> None:
    world = [comm for comm in job.comms if comm.name == "default_pg"] or job.comms
    members: Members = max((group_traces.members for group_traces in world), key=size, default=())
    if not members:
        return
    job.world = size(members)
    job.absent = [rank for part in members for rank in part if rank not in job.rings]
    if job.absent:
        got = f"{job.world - len(job.absent)} of {job.world}"
        reason = f"no readable dump from {len(job.absent)} ranks: {short_ranges(job.absent)}"
        job.gap(
            "ranks_without_dump",
            reason,
            got=got,
            rules_out="whether these ranks joined the operations that others wait for",
        )


def _shared_shapes(job: JobTraces) -> None:
    """For every ring, its shape indices in the numbering that all ranks share."""
    cache: dict[tuple[OpShape, ...], list[int]] = {}
    job.kinds[OpShape("")] = 0
    for rank, ring in job.rings.items():
        table = cache.get(ring.shapes)
        if table is None:
            table = [job.kinds.setdefault(shape, len(job.kinds)) for shape in ring.shapes]
            if len(cache) < 1024:
                cache[ring.shapes] = table
        job.tables[rank] = table


@dataclass(frozen=True, slots=True)
class RankProgress:
    """A rank's progress in a group: last number queued, last number finished."""

    queued: int
    done: int


def counts_of(comm: GroupTraces, job: JobTraces, *, p2p: bool) -> dict[int, RankProgress]:
    """How far each rank got, if that is known. A rank that counts all its groups but not this one never used it."""
    out: dict[int, RankProgress] = {}
    for rank, lane in comm.lanes.items():
        status = None if p2p else lane.status
        queued = max(lane.last, status[0] if status else -1)
        if queued < 0 and (p2p or (status is None and not job.rings[rank].counts_all)):
            continue
        done = max(lane.done, status[2] if status else -1, lane.waits[0].seq - 1 if lane.waits else -1, 0)
        out[rank] = RankProgress(max(queued, 0), min(done, max(queued, 0)))
    if not p2p and not comm.inferred:
        for part in comm.members:
            for rank in part:
                if rank not in comm.lanes and rank in job.rings and job.rings[rank].counts_all:
                    out[rank] = RankProgress(0, 0)
    return out


def op_of(comm: GroupTraces, job: JobTraces, seq: int) -> str:
    """Return the operation under a number, as one of the ranks recorded it."""
    for rank, lane in comm.lanes.items():
        if index := shape_at(lane, seq):
            return job.rings[rank].shapes[index].op
    return ""
