"""Ranks and nodes that are missing among those that wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kb.diagnosis.findings import Finding
from kb.diagnosis.ranking import Ranked
from kb.diagnosis.suspects.claims import SUSPECTS, WAITING_FAULTS, SuspectClaim
from kb.diagnosis.suspects.ranking import with_scores
from kb.facts.job_facts import Facts
from kb.facts.topology import Place, Places
from kb.report import Suspect

FEW_QUIET = 1 / 3  # upper bound on the share of ranks (nodes) that are suspects while all others wait


@dataclass(frozen=True, slots=True)
class JobLayout:
    """Where suspects are looked for: the job's facts, its layout, and all findings."""

    facts: Facts
    places: Places
    findings: tuple[Finding, ...]


# Missing ranks


def missing_among_waiting(
    waits: Sequence[SuspectClaim], ranked: Ranked, layout: JobLayout, rumours: Mapping[str | None, int]
) -> tuple[Suspect, ...]:
    """Return those that do not wait while most others do. `rumours`: how often peers name a node."""
    units = layout.places.units
    waiting = {wait.place.unit for wait in waits} | {(rank, None, None) for rank in ranked.best.ranks}
    for finding in layout.findings:
        if finding.is_symptom or finding.fault.id in WAITING_FAULTS:
            waiting |= {(rank, None, None) for rank in finding.ranks}
    quiet = [place for place in units if place.unit not in waiting]
    if not quiet or len(quiet) > max(1, FEW_QUIET * len(units)):
        return _silent_nodes(waits, layout.places)
    why = f"{len(units) - len(quiet)} of {len(units)} ranks wait, this one does not"
    quiet.sort(key=lambda place: -rumours.get(place.node, 0))  # of several, the one that peers name
    return _silent_suspects(_whole_nodes(quiet, units, rumours), why)


def _silent_nodes(waits: Sequence[SuspectClaim], places: Places) -> tuple[Suspect, ...]:
    """Return the nodes whose logs show no wait, where ranks are unknown."""
    nodes = {wait.place.node for wait in waits} - {None}
    absent = [Place(None, node) for node in places.nodes if node not in nodes]
    if any(wait.place.rank is not None for wait in waits) or len(absent) > FEW_QUIET * len(places.nodes):
        return ()
    return _silent_suspects(absent, f"{len(nodes)} of {len(places.nodes)} nodes wait, this one does not")


def _whole_nodes(quiet: Sequence[Place], units: Sequence[Place], rumours: Mapping[str | None, int]) -> list[Place]:
    """Return silent ranks, or their node: where all its ranks are silent, or where peers name only the node."""
    here, all_here = Counter(place.node for place in quiet), Counter(place.node for place in units)
    shown: dict[Place, None] = {}
    for place in quiet:
        whole = here[place.node] > 1 and (here[place.node] == all_here[place.node] or rumours.get(place.node, 0) > 0)
        shown.setdefault(Place(None, place.node) if whole and place.node is not None else place)
    return list(shown)


def _silent_suspects(places: Sequence[Place], why: str) -> tuple[Suspect, ...]:
    return with_scores(
        Suspect(
            "rank" if place.rank is not None else "node",
            place.node,
            place.rank,
            place.local,
            why=why,
        )
        for place in places[:SUSPECTS]
    )
