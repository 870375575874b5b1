"""Detects ranks that never joined a collective or joined another one, from the lines of c10d's watchdogs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from kb.model import Structure
from kb.report import ranges
from kb.values import dataclass

_POINT_TO_POINT = ("SEND", "RECV", "COALESCED")
# no rank completes these before every rank has contributed
_NEED_ALL = (
    "ALLREDUCE",
    "ALLREDUCE_COALESCED",
    "_ALLGATHER_BASE",
    "ALLGATHER",
    "_REDUCE_SCATTER_BASE",
    "REDUCE_SCATTER",
    "ALLTOALL",
    "ALLTOALL_BASE",
    "BARRIER",
)
_SAME_SIZE = ("ALLREDUCE", "BROADCAST", "REDUCE", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE")  # all ranks pass as much


@dataclass(frozen=True, slots=True)
class BehindRank:
    """A rank that never enqueued the collective in which others wait, according to its own last status."""

    stream: int
    status: Structure
    captures: tuple[tuple[str, str], ...]


def collective_behind(
    statuses: Sequence[tuple[int, Structure]], timeouts: Sequence[tuple[int, Structure]] = ()
) -> tuple[BehindRank, ...]:
    """Return the ranks that lag, according to the lines of c10d's watchdogs.

    `statuses`: "last enqueued, last completed"; `timeouts`: the collective that a rank reports as timed out. Within a
    process group, ranks with work enqueued and not completed wait in their next collective. A rank whose last enqueued
    work is an earlier one never joined it. (A rank stuck inside the NCCL call counts as not having enqueued.) A timeout
    tells the same of a rank without a status, if it names the group and is no point-to-point work, which is counted apart.
    """
    groups: dict[str, dict[int, tuple[int, Structure, int, int]]] = {}
    for stream, pair in statuses:
        rank = _rank(pair)
        enqueued, completed = _parse_int(pair.fields.get("enqueued")), _parse_int(pair.fields.get("completed"))
        if rank is not None and enqueued is not None and completed is not None:
            groups.setdefault(str(pair.fields.get("pg") or ""), {}).setdefault(
                rank, (stream, pair, enqueued, completed)
            )
    timed_out: dict[str, dict[int, int]] = {}
    operations: dict[tuple[str, int, int], str] = {}
    for _, pair in timeouts:
        group, rank, number = str(pair.fields.get("pg") or ""), _rank(pair), _parse_int(pair.fields.get("seq"))
        if rank is not None and number is not None and group and pair.fields.get("op") not in _POINT_TO_POINT:
            of_group = timed_out.setdefault(group, {})
            of_group[rank] = min(number, of_group.get(rank, number))
            operations[group, rank, number] = str(pair.fields.get("op") or "")
    found = []
    for group, ranks in groups.items():
        others = {rank: number for rank, number in timed_out.get(group, {}).items() if rank not in ranks}
        waiting = [completed + 1 for _, _, enqueued, completed in ranks.values() if enqueued > completed >= 0]
        waiting += others.values()
        if not waiting:
            continue
        stuck = max(waiting)
        behind = {rank: at for rank, at in ranks.items() if at[2] < stuck}
        if behind and len(behind) < len(ranks) + len(others):
            named = ("rank " if len(behind) == 1 else "ranks ") + ranges(behind)
            own = {
                rank: number for rank, number in timed_out.get(group, {}).items() if rank in behind and number < stuck
            }
            for rank, (stream, item, enqueued, _) in sorted(behind.items()):
                words: tuple[tuple[str, str], ...] = (
                    ("behind", str(rank)),
                    ("waited", str(stuck)),
                    ("reached", str(enqueued)),
                    ("all_behind", named),
                    ("number", "one" if len(behind) == 1 else "several"),
                )
                if rank in own:  # it waits as well, in an earlier collective of the group
                    operation = operations[group, rank, own[rank]]
                    words += (("behind_waits", "yes"), ("own_wait", f"{operation} {own[rank]}".strip()))
                found.append(BehindRank(stream, item, words))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class DifferingRank:
    """A rank that timed out in a different collective than other ranks of its group did under the same number."""

    stream: int
    timeout: Structure
    captures: tuple[tuple[str, str], ...]


def collectives_differ(
    timeouts: Sequence[tuple[int, Structure]], statuses: Sequence[tuple[int, Structure]] = ()
) -> tuple[DifferingRank, ...]:
    """Return the ranks whose watchdogs report another operation or size under a number than the other ranks of the group.

    `timeouts`: the collectives that ranks report as timed out. If one collective is the usual one, only the ranks with others are
    returned. Lines that name no group count as one group if each rank reports one number. `statuses`: "last enqueued, last completed",
    which tell of ranks that wait under different numbers whether they can have run the same collectives.
    """
    return _under_one_number(timeouts) or _passed_by(timeouts, statuses)


def _under_one_number(timeouts: Sequence[tuple[int, Structure]]) -> tuple[DifferingRank, ...]:
    groups: dict[str, dict[int, tuple[int, Structure]]] = {}
    several: set[str] = set()
    for stream, item in timeouts:
        group, rank = str(item.fields.get("pg") or ""), _rank(item)
        if rank is None or item.fields.get("op") in _POINT_TO_POINT:
            continue
        first = groups.setdefault(group, {}).setdefault(rank, (stream, item))[1]
        if first.fields.get("seq") != item.fields.get("seq"):
            several.add(group)
    return tuple(
        found
        for group, ranks in groups.items()
        if group or group not in several
        for number in sorted({str(item.fields.get("seq")) for _, item in ranks.values()})
        for found in _differing({rank: at for rank, at in ranks.items() if str(at[1].fields.get("seq")) == number})
    )


def _passed_by(
    timeouts: Sequence[tuple[int, Structure]], statuses: Sequence[tuple[int, Structure]]
) -> tuple[DifferingRank, ...]:
    """Return the rank that waits in a collective which another rank of the group, by its status, completed, and more after it.

    All ranks contribute to such a collective, so a rank that goes on to others needs them again: most likely the two did not run
    the same ones under the same numbers. It is no proof, since the last part of one may be lost on its way to a single rank, and what
    comes between may be an operation that a rank ends alone. The two must wait in different operations of one group.
    """
    waits: dict[tuple[int, int], list[tuple[int, Structure]]] = {}
    for stream, item in timeouts:
        rank, number = _rank(item), _parse_int(item.fields.get("seq"))
        if rank is not None and number is not None and item.fields.get("op") not in _POINT_TO_POINT:
            waits.setdefault((rank, number), []).append((stream, item))
    groups: dict[str, dict[int, tuple[int, tuple[int, Structure]]]] = {}
    for _, item in statuses:
        rank, completed, group = _rank(item), _parse_int(item.fields.get("completed")), str(item.fields.get("pg") or "")
        of_rank = [] if rank is None or completed is None else waits.get((rank, completed + 1), [])
        mine = [wait for wait in of_rank if str(wait[1].fields.get("pg") or group) == group]
        if rank is not None and completed is not None and len(mine) == 1:
            groups.setdefault(group, {}).setdefault(rank, (completed + 1, mine[0]))
    for group, ranks in groups.items():
        (first, (low, early)), (last, (high, late)) = (
            choose(ranks.items(), key=lambda item: item[1][0]) for choose in (min, max)
        )
        operations = [str(item.fields.get("op")) for _, item in (early, late)]
        if group and high - low > 1 and len(set(operations)) == 2 and set(operations) <= {*_NEED_ALL}:
            both = f"rank {first} in {operations[0]} {low} and rank {last} in {operations[1]} {high}"
            return (DifferingRank(*early, (("differing", f"rank {first}"), ("collectives", both), ("others", "yes"))),)
    return ()


def _differing(ranks: Mapping[int, tuple[int, Structure]]) -> list[DifferingRank]:
    """Return the ranks of one group and number whose collective is not the usual one."""
    said = {rank: _collective(item) for rank, (_, item) in ranks.items()}
    counted = Counter(said.values()).most_common()
    if len(counted) < 2 or not _unlike([what for what, _ in counted]):
        return []
    usual = counted[0][0] if counted[0][1] > counted[1][1] else None
    odd = sorted(rank for rank, what in said.items() if what != usual)
    named = ("rank " if len(odd) == 1 else "ranks ") + ranges(odd)
    both = " and ".join(f"{operation} of {size or 'unknown size'}" for (operation, size), _ in counted[:2])
    words: tuple[tuple[str, str], ...] = (("differing", named), ("collectives", both))
    words += (("number", str(ranks[odd[0]][1].fields.get("seq"))), *([("others", "yes")] if usual is not None else []))
    return [DifferingRank(*ranks[rank], words) for rank in odd]


def _collective(timeout: Structure) -> tuple[str, str]:
    """Return the operation and its number of elements."""
    return str(timeout.fields.get("op") or ""), str(timeout.fields.get("numel_in") or "")


def _unlike(collectives: Sequence[tuple[str, str]]) -> bool:
    """Whether operations differ, or sizes of one that has the same on all ranks."""
    if len({operation for operation, _ in collectives}) > 1:
        return True
    return collectives[0][0] in _SAME_SIZE and len({size for _, size in collectives if size}) > 1


def _rank(structure: Structure) -> int | None:
    own = structure.resource.rank
    return own if own is not None else _parse_int(structure.fields.get("pg_rank"))


def _parse_int(value: object) -> int | None:
    try:
        return int(str(value))
    except ValueError:
        return None
