"""Determines a process group's role for a rank, such as tensor or data group, regardless of the group's number.

Ranks of one job create their groups with the same code, so groups of one role have the same description except for
numbers in it ("data_parallel_0", "data_parallel_1"). Groups without a description are distinguished by their size and
by their position among the rank's own, since all ranks create them in the same order.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache

from kb.collectives.communicators import GroupTraces, JobTraces
from kb.collectives.trace import GroupLane, shape_at, size

_ASKED = 64  # maximum of numbers looked up over all groups of a role
_NUMBER = re.compile(r"\d+")


class GroupRoles:
    """The roles of a job's groups, each a number from 0."""

    def __init__(self, job: JobTraces) -> None:
        self._job = job
        self._known: dict[tuple[str, int, int], int] = {}
        self._of: dict[int, tuple[int, ...]] = {}
        self._comms: dict[int, list[GroupTraces]] = {}
        self._ran: dict[tuple[int, int], Counter[int]] = {}

    def of(self, rank: int) -> tuple[int, ...]:
        """Return the roles of a rank's lanes, in the order of its ring."""
        if rank not in self._of:
            self._of[rank] = self._lane_numbers(self._job.rings[rank].lanes)
        return self._of[rank]

    def ran(self, comm: GroupTraces, seq: int) -> Mapping[int, int]:
        """What ranks of other groups in a communicator's role ran under a number: shape (as in `Job.kinds`) → ranks."""
        role = self._role(comm)
        if (role, seq) not in self._ran:
            if len(self._ran) >= _ASKED:
                return Counter()
            self._ran[role, seq] = sum((_ran(self._job, item, seq) for item in self._alike(role)), Counter[int]())
        return self._ran[role, seq] - _ran(self._job, comm, seq)

    def _alike(self, role: int) -> Sequence[GroupTraces]:
        if not self._comms:
            for comm in self._job.comms:
                self._comms.setdefault(self._role(comm), []).append(comm)
        return self._comms[role]

    def _role(self, comm: GroupTraces) -> int:
        rank = next(iter(comm.lanes))
        lanes = self._job.rings[rank].lanes
        return self.of(rank)[next(index for index, lane in enumerate(lanes) if lane.pg == comm.pg)]

    def _lane_numbers(self, lanes: Sequence[GroupLane]) -> tuple[int, ...]:
        met: dict[tuple[str, int], int] = defaultdict(int)
        out = [0] * len(lanes)
        for index in sorted(range(len(lanes)), key=lambda item: _place(lanes[item].pg)):
            lane = lanes[index]
            name = _common(lane.name)
            key = (name, 0 if name else size(lane.members))
            out[index] = self._known.setdefault((*key, met[key]), len(self._known))
            met[key] += 1
        return tuple(out)


def _ran(job: JobTraces, comm: GroupTraces, seq: int) -> Counter[int]:
    return Counter(job.tables[rank][index] for rank, lane in comm.lanes.items() if (index := shape_at(lane, seq)))


@lru_cache(maxsize=4096)
def _common(name: str) -> str:
    """Return a description without its numbers; empty if it says nothing."""
    return "" if name == "undefined" else _NUMBER.sub("#", name)


def _place(pg: str) -> tuple[int, str]:
    """Groups in the order in which they were created, if their names contain numbers."""
    return (int(pg) if pg.isdecimal() and len(pg) < 18 else 1 << 62, pg)
