"""Corrects the ranks in tables by the ranks that the job can have.

A number in the place of a rank that the job cannot have is not a rank: it may be a launcher's process id. A machine's
journal whose lines are those of the job's ranks is a log of the job.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from kb.templates.table import TemplateTable
from kb.templates.template import Occurrence, TemplatePlace

FAR_APART = 8  # times as high as their number, ranks are none
FEW = 0.25  # share of the ranks that may be none
FEWEST_RANKS = 3  # of a journal that is a log of the job
MOSTLY = 0.6  # of its lines name a rank


def with_own_ranks(table: TemplateTable, world_size: int | None = None) -> TemplateTable:
    """The table without ranks that the job cannot have."""
    ranks = table.endings.keys()
    highest = world_size or FAR_APART * len(ranks)
    strange = frozenset(rank for rank in ranks if rank >= highest)
    if not strange or len(strange) > FEW * len(ranks):
        return table
    templates = {name: _without(seen, strange) for name, seen in table.templates.items()}
    endings = {rank: place for rank, place in table.endings.items() if rank not in strange}
    return replace(table, templates=templates, endings=endings)


def of_job(table: TemplateTable, world_size: int | None = None) -> TemplateTable:
    """The table as one of the job's logs, if it is a journal in which all of the job's ranks write most of the lines."""
    spoken = sum(sum(seen.ranks.values()) for seen in table.templates.values())
    every = len(table.endings) >= FEWEST_RANKS and len(table.endings) == (world_size or max(table.endings) + 1)
    if table.ref.kind != "kernel" or not every or spoken < MOSTLY * table.events:
        return table
    return replace(table, ref=replace(table.ref, kind="job"))


def _without(seen: Occurrence, ranks: frozenset[int]) -> Occurrence:
    """A template of which some ranks are taken for none."""
    if not ranks & seen.ranks.keys():
        return seen
    return replace(
        seen,
        ranks={rank: count for rank, count in seen.ranks.items() if rank not in ranks},
        first=_unnamed(seen.first, ranks),
        last=_unnamed(seen.last, ranks),
        ranked_first=_unnamed(seen.ranked_first, ranks),
        ranked_last=_unnamed(seen.ranked_last, ranks),
    )


def _unnamed(places: tuple[TemplatePlace, ...], ranks: Collection[int]) -> tuple[TemplatePlace, ...]:
    return tuple(replace(place, rank=None) if place.rank in ranks else place for place in places)
