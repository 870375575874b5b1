"""Corrects the ranks in tables by the ranks that the job can have.

A number in the place of a rank that the job cannot have is not a rank: it may be a launcher's process id. A machine's
journal whose lines are those of the job's ranks is a log of the job.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from kb.templates.table import TemplateTable
from kb.templates.template import Occurrence, TemplatePlace

FAR_APART = 8  # times as high as their number, ranks are none
FEW = 0.25  # share of the ranks that may be none
FEWEST_RANKS = 3  # of a journal that is a log of the job
PRESENT = 0.9  # of the job's ranks are named in the journals of its nodes
MOSTLY = 0.6  # of its lines name a rank
ALIKE = 0.9  # share of the lines that agree by how much torchrun's number of a process on its node is below its rank
_LOCAL = re.compile(r"\[default(\d{1,4})\]:")
_BOTH = re.compile(
    r"\[default(\d{1,4})\]:[^\n]{0,120}?"
    r"(?:\[rank(?:: )?|\"_?(?:global_)?rank\": ?\"?|(?<![\w-])(?<!local[ _])(?:global[ _]|GLOBAL_)?(?:rank|Rank|RANK)[=: ]{1,3}\"?)"
    r"(\d{1,6})(?![\w.])"
)
_REPORTED = re.compile(r"\brank {0,8}: (\d{1,6}) \(local_rank: (\d{1,4})\)")  # of a member that failed


def with_own_ranks(table: TemplateTable, world_size: int | None = None) -> TemplateTable:
    """The table without ranks that the job cannot have."""
    ranks = table.endings.keys()
    highest = world_size or FAR_APART * len(ranks)
    if 0 not in ranks and world_size in ranks:
        highest += 1  # counted from one, as `docker compose` names its containers
    strange = frozenset(rank for rank in ranks if rank >= highest)
    if not strange or len(strange) > FEW * len(ranks):
        return table
    templates = {name: _without(seen, strange) for name, seen in table.templates.items()}
    endings = {rank: place for rank, place in table.endings.items() if rank not in strange}
    return replace(table, templates=templates, endings=endings)


def with_global_ranks(table: TemplateTable) -> TemplateTable:
    """The table of a second node's log with the ranks of the job in place of torchrun's numbers on that node, `[default3]:`.

    Its lines tell both now and then: PyTorch's tracebacks, a program's own lines, and torchrun's report of members that failed.
    """
    pairs = [pair for seen in table.templates.values() for place in seen.places for pair in _both(place.line)]
    apart = [rank - local for local, rank in pairs]
    usual = max(set(apart), key=lambda number: (apart.count(number), -number), default=0)
    several = len({pair for pair in pairs if pair[1] - pair[0] == usual}) > 1
    if usual <= 0 or not several or apart.count(usual) < ALIKE * len(apart):
        return table
    templates = {name: _moved(seen, usual) for name, seen in table.templates.items()}
    endings = {rank + usual if _is_local(place) else rank: place for rank, place in table.endings.items()}
    return replace(table, templates=templates, endings={rank: _with(place, usual) for rank, place in endings.items()})


def _both(line: str) -> Iterable[tuple[int, int]]:
    """The number on the node and the rank, where a line tells both."""
    if match := _BOTH.match(line):
        yield int(match[1]), int(match[2])
    elif match := _REPORTED.search(line):
        yield int(match[2]), int(match[1])


def _is_local(place: TemplatePlace) -> bool:
    """Whether the rank of a line is torchrun's number on the node."""
    match = _LOCAL.match(place.line)
    return match is not None and place.rank == int(match[1])


def _with(place: TemplatePlace, apart: int) -> TemplatePlace:
    return replace(place, rank=place.rank + apart) if place.rank is not None and _is_local(place) else place


def _moved(seen: Occurrence, apart: int) -> Occurrence:
    """A template whose lines have the ranks of the job; its counts, too, if all its lines have torchrun's prefix."""
    named = [place for place in seen.places if place.rank is not None]
    if not any(map(_is_local, named)):
        return seen
    return _with_places(
        replace(seen, ranks={rank + apart: n for rank, n in seen.ranks.items()}), lambda p: _with(p, apart)
    )


def of_job(tables: Sequence[TemplateTable], world_size: int | None = None) -> list[TemplateTable]:
    """The tables; journals in which all of the job's ranks, or those of their node each, write most of the lines are logs of the job."""
    spoken = {
        table.ref.uri: table
        for table in tables
        if table.ref.kind == "kernel"
        and table.endings
        and sum(sum(seen.ranks.values()) for seen in table.templates.values()) >= MOSTLY * table.events
    }
    ranks = [rank for table in spoken.values() for rank in table.endings]
    size = world_size or max(ranks, default=0) + 1
    enough = PRESENT * size if len(spoken) > 1 else size  # of several nodes, one rank may not have started
    if len(ranks) < FEWEST_RANKS or len(set(ranks)) < len(ranks) or max(ranks) >= size or len(ranks) < enough:
        return list(tables)
    return [
        replace(table, ref=replace(table.ref, kind="job")) if table.ref.uri in spoken else table for table in tables
    ]


def _without(seen: Occurrence, ranks: frozenset[int]) -> Occurrence:
    """A template of which some ranks are taken for none."""
    if not ranks & seen.ranks.keys():
        return seen
    kept = replace(seen, ranks={rank: count for rank, count in seen.ranks.items() if rank not in ranks})
    return _with_places(kept, lambda place: replace(place, rank=None) if place.rank in ranks else place)


def _with_places(seen: Occurrence, change: Callable[[TemplatePlace], TemplatePlace]) -> Occurrence:
    return replace(
        seen,
        first=tuple(map(change, seen.first)),
        last=tuple(map(change, seen.last)),
        ranked_first=tuple(map(change, seen.ranked_first)),
        ranked_last=tuple(map(change, seen.ranked_last)),
    )
