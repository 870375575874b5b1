"""The different collectives in which the ranks of a job wait, by what their watchdogs report."""

from __future__ import annotations

from kb.facts.job_facts import Facts
from kb.facts.patterns.signals import Signal

_SHOWN = 3  # ranks that are told one by one


def different_waits(first: Signal, facts: Facts) -> str:
    """Return in which collective each of a few ranks waits, where no two wait in the same; empty otherwise.

    Such as "rank 0 in ALLGATHER (number 12), rank 1 in ALLREDUCE (number 9)". Only watchdogs of the same process group and the
    same attempt as the line `first` count, and of each rank the first. Lines that do not name their group may be of several,
    each with numbers of its own: so it is if a rank reports several numbers, and it may be if ranks wait in the same operation.
    """
    waits: dict[int, tuple[str, str]] = {}
    groups = set()
    again = False  # a rank reported another number, too
    for index, item in facts.structures("watchdog"):
        begun, then = facts.streams[index].attempt(first.offset if index == first.stream else item.offset)
        rank: object = item.resource.rank
        rank = item.fields.get("pg_rank") if rank is None and not item.fields.get("pg") else rank
        operation, number = item.fields.get("op"), item.fields.get("seq")
        within = begun <= item.offset and (then is None or item.offset < then)
        if within and isinstance(rank, int) and operation and number is not None:
            wait = waits.setdefault(rank, (str(operation), str(number)))
            again = again or wait[1] != str(number)
            groups.add(item.fields.get("pg"))
    if not 2 <= len(waits) <= _SHOWN or len(groups) != 1 or len(set(waits.values())) < len(waits):
        return ""
    operations = {operation for operation, _ in waits.values()}
    if groups <= {None, ""} and (again or len(operations) < len(waits)):
        return ""
    return ", ".join(f"rank {rank} in {name} (number {number})" for rank, (name, number) in sorted(waits.items()))
