"""The rank that was elsewhere in the run's own code than all others when their communication failed."""

from __future__ import annotations

from collections import Counter

from kb.diagnosis.ranking import Ranked
from kb.diagnosis.suspects.missing import JobLayout
from kb.diagnosis.suspects.ranking import with_scores
from kb.regex.lazy import lazy_compile
from kb.report import Suspect

FEWEST = 3  # ranks: of two, none is the one that differs
_LIBRARY = lazy_compile(r"(?:site|dist)-packages/|/lib/python3|<frozen |^<string>")


def elsewhere_in_code(ranked: Ranked, layout: JobLayout) -> tuple[Suspect, ...]:
    """Return the one rank whose last exception came from another line of the run's own code than that of all others.

    Only where every rank of the job reports the symptom: a rank that is silent says more.
    """
    facts, places = layout.facts, layout.places
    reporting = frozenset(ranked.best.ranks).union(*(finding.ranks for finding in (*ranked.findings, *ranked.folded)))
    sites: dict[int, str] = {}
    for index, item in facts.structures("exception"):
        rank = places.place(index, item.resource).rank
        own = [
            frame for frame in str(item.fields.get("frames") or "").split("\n") if frame and not _LIBRARY.search(frame)
        ]
        if rank is not None and rank in reporting and own:
            sites[rank] = own[-1]
    if len(sites) < max(FEWEST, places.world):
        return ()
    ((_, most),) = Counter(sites.values()).most_common(1)
    if most != len(sites) - 1:
        return ()
    usual = Counter(sites.values()).most_common(1)[0][0]
    rank = next(rank for rank, site in sites.items() if site != usual)
    why = f"it was at {_short(sites[rank])}, the other {most} ranks at {_short(usual)}"
    return with_scores([Suspect("rank", places.node_of(rank), rank, why=why)])


def _short(frame: str) -> str:
    """Return a frame without the folders of its file."""
    return frame[:200].rpartition("/")[2]
