"""Ranks and nodes that are missing among those that wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from kb.diagnosis.findings import Finding
from kb.diagnosis.ranking import Ranked
from kb.diagnosis.suspects.claims import SUSPECTS, WAITING_FAULTS, SuspectClaim, waits_for_others
from kb.diagnosis.suspects.ranking import with_scores
from kb.diagnosis.suspects.sighting import SILENT
from kb.facts.job_facts import LAUNCHER_KINDS, Facts
from kb.facts.topology import Place, Places
from kb.report import Suspect
from kb.values import dataclass

SEVERAL = 2
MOST_RANKS = 1 << 20
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
    waiting |= {(rank, None, None) for rank in waiting_ranks(layout)}
    quiet = [place for place in units if place.unit not in waiting]
    if not quiet and (absent := _without_lines(layout.places)):
        return _silent_suspects(absent, _silent(layout.places.share(len(units))))
    if not quiet and len(units) > SEVERAL and (stopped := _only_stopped(layout)) is not None:
        return _silent_suspects(
            [stopped], f"{layout.places.share(len(units) - 1)} timed out or lost a peer; this one reports none of that"
        )
    if not quiet or len(quiet) == len(units) or len(quiet) > max(1, FEW_QUIET * len(units)):  # without one that waits
        return _silent_nodes(waits, layout.places)
    why = _silent(layout.places.share(len(units) - len(quiet), len(units)))
    ended = _reported_ends(ranked.best, layout)
    quiet = [place for place in quiet if place.rank in ended] or quiet
    quiet.sort(key=lambda place: -rumours.get(place.node, 0))  # of several, the one that peers name
    return _silent_suspects(_whole_nodes(quiet, units, rumours), why)


def _reported_ends(best: Finding, layout: JobLayout) -> set[int | None]:
    """Return the ranks whose end a launcher reports in the lines of the failure itself."""
    lines = {(signal.stream, signal.offset) for signal in best.signals}
    ends = [item for index, item in layout.facts.structures("launcher_exit") if (index, item.offset) in lines]
    tasks = {layout.places.rank_of_task(str(item.fields.get("task"))) for item in ends if item.fields.get("task")}
    return (tasks | {item.resource.rank for item in ends}) - {None}


def _without_lines(places: Places) -> list[Place]:
    """Return the few ranks of a job of known size of which no line was given."""
    ranks = sorted(set(range(min(places.world, MOST_RANKS))) - places.ranks)
    return [Place(rank, places.node_of(rank)) for rank in ranks] if len(ranks) <= FEW_QUIET * places.world else []


def _only_stopped(layout: JobLayout) -> Place | None:
    """Return the one rank of which only a launcher says that it ended, where all others report a wait themselves."""
    waits = (item for item in layout.findings if item.is_symptom or item.fault.id in WAITING_FAULTS)
    told = {signal.resource.rank for item in waits for signal in item.signals if signal.kind not in LAUNCHER_KINDS}
    left = [place for place in layout.places.units if place.rank not in told]
    return left[0] if len(left) == 1 else None


def only_silent_rank(ranked: Ranked, layout: JobLayout) -> tuple[Suspect, ...]:
    """Return the one rank that reports no lost peer while all others do: lines that name no rank are its own."""
    places = layout.places
    waiting = waiting_ranks(layout)
    if places.world < SEVERAL or ranked.best.ranks or len(waiting) != places.world - 1:
        return ()
    silent = [Place(rank, places.node_of(rank)) for rank in set(range(min(places.world, MOST_RANKS))) - waiting]
    why = _silent(places.share(len(waiting)))
    return _silent_suspects(silent, why) if len(silent) == 1 else ()


def waiting_ranks(layout: JobLayout) -> frozenset[int]:
    """Return the ranks that report a lost peer or a timeout."""
    waiting: set[int] = set()
    for finding in layout.findings:
        if finding.is_symptom or finding.fault.id in WAITING_FAULTS:
            waiting |= finding.ranks
        else:
            ranks = (signal.resource.rank for signal in finding.signals if waits_for_others(signal))
            waiting |= {rank for rank in ranks if rank is not None}
    # "Timeout at NCCL work": not all watchdogs print the longer line that the rule reads
    timed_out = (item.resource.rank for _, item in layout.facts.structures("watchdog_status") if "at" in item.fields)
    return frozenset(waiting | {rank for rank in timed_out if rank is not None})


def _silent_nodes(waits: Sequence[SuspectClaim], places: Places) -> tuple[Suspect, ...]:
    """Return the nodes whose logs show no wait, where ranks are unknown."""
    nodes = {wait.place.node for wait in waits} - {None}
    absent = [Place(None, node) for node in places.nodes if node not in nodes]
    if any(wait.place.rank is not None for wait in waits) or len(absent) > FEW_QUIET * len(places.nodes):
        return ()
    return _silent_suspects(absent, _silent(f"{len(nodes)} of {len(places.nodes)} nodes"))


def _whole_nodes(quiet: Sequence[Place], units: Sequence[Place], rumours: Mapping[str | None, int]) -> list[Place]:
    """Return silent ranks, or their node: where all its ranks are silent, or where peers name only the node."""
    here, all_here = Counter(place.node for place in quiet), Counter(place.node for place in units)
    shown: dict[Place, None] = {}
    for place in quiet:
        whole = here[place.node] > 1 and (here[place.node] == all_here[place.node] or rumours.get(place.node, 0) > 0)
        shown.setdefault(Place(None, place.node) if whole and place.node is not None else place)
    return list(shown)


def _silent(others: str) -> str:
    """Return why a rank or node stands out. The others' lines do not tell waiting from being stopped."""
    return f"{others} {SILENT}"


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
