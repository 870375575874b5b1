"""Maps the processes that NCCL RAS names by host and pid to global ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from kb.parsers.nccl_ras.values import Process, RasReport

MAX_POLLS: Final = 64  # number of newest answers compared


def world_ranks(
    reports: Sequence[RasReport], world_size: int | None, known: Mapping[Process, int] | None = None
) -> Mapping[Process, int]:
    """Return the global rank of each (host, pid) that RAS names.

    Derived from a communicator as large as the world, and from `known`. RAS uses host addresses and logs use host
    names, so a pid that occurs once on both sides identifies the host. Contradictory results are omitted.
    """
    processes: dict[Process, int | None] = {}
    for report in reports[-MAX_POLLS:]:
        for comm in report.communicators:
            whole = comm.size == world_size
            for rank in comm.ranks:
                if rank.pid is not None:
                    _settle(processes, (rank.host, rank.pid), rank.rank if whole else None)
    return _with_known(processes, known or {})


def _settle(processes: dict[Process, int | None], key: Process, rank: int | None) -> None:
    """Record a process's rank; -1 if two answers contradict each other."""
    old = processes.get(key)
    if old is None:
        processes[key] = rank
    elif rank is not None and rank != old:
        processes[key] = -1


def _with_known(processes: Mapping[Process, int | None], known: Mapping[Process, int]) -> Mapping[Process, int]:
    pids = Counter(pid for _, pid in processes)
    by_pid: dict[int, list[int]] = {}
    for (_, pid), rank in known.items():
        by_pid.setdefault(pid, []).append(rank)
    found: dict[Process, int] = {}
    for (host, pid), seen in processes.items():
        alone = by_pid.get(pid, [])
        known_rank = known.get((host, pid), seen)
        if known_rank is None and pids[pid] == 1 and len(alone) == 1:
            known_rank = alone[0]
        if known_rank is not None and known_rank >= 0:
            found[host, pid] = known_rank
    return found
