"""Claims as suspects, with a score and their evidence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from kb.diagnosis.suspects.claims import SuspectClaim, has_place
from kb.diagnosis.suspects.sighting import (
    FIRST_IN_LOG,
    FIRST_REPORTER,
    LATER_IN_LOG,
    LATER_REPORTER,
    ONLY_REPORTER,
    OWN_LOG,
)
from kb.facts.job_facts import CLOCK_SKEW
from kb.facts.patterns.signals import Signal
from kb.report import EvidenceItem, GpuRef, Suspect

EVIDENCE_SHOWN = 5  # pieces of evidence per suspect


def whole_job(quoted: Sequence[EvidenceItem], why: str) -> tuple[Suspect, ...]:
    """Return the job itself as the only suspect."""
    return (Suspect("job", why=why, evidence=tuple(evidence_item.id for evidence_item in quoted)),)


def first_in_time(claims: Sequence[SuspectClaim]) -> tuple[Suspect, ...]:
    """Return the places that show it, the first in time first. A node is listed only where none of its ranks is known."""
    first: dict[tuple[int | None, str | None, int | None], SuspectClaim] = {}
    for claim in claims:
        if has_place(claim.place):
            first.setdefault(claim.place.unit, claim)
    ranked = {suspect_claim.place.node for suspect_claim in first.values() if suspect_claim.place.rank is not None}
    chosen = [
        suspect_claim
        for suspect_claim in first.values()
        if suspect_claim.place.rank is not None or suspect_claim.place.node not in ranked
    ]
    by_place = {
        (suspect_claim.place.rank, suspect_claim.place.node): suspect_claim for suspect_claim in reversed(chosen)
    }
    found = [
        suspect_claim
        for suspect_claim in chosen
        if by_place[suspect_claim.place.rank, suspect_claim.place.node] is suspect_claim
    ]
    leading = rest = OWN_LOG
    if len(found) == 1:
        leading = ONLY_REPORTER
    elif found and _leads(found[0], claims):
        leading, rest = FIRST_REPORTER, LATER_REPORTER
    elif (
        len({claim.signal.stream for claim in claims}) == 1
        and len(found) > 1
        and not any(c.signal.timed for c in claims)
    ):
        leading, rest = FIRST_IN_LOG, LATER_IN_LOG  # which need not be the order of the events
    return with_scores(to_suspect(item, leading if at == 0 else rest) for at, item in enumerate(found))


def _leads(first: SuspectClaim, claims: Sequence[SuspectClaim]) -> bool:
    """Whether one place reports it before all others: in the same log, or by clocks that differ by more than their skew.

    In one log, times decide where the lines have them, because processes may flush their output late.
    """
    others = [claim.signal for claim in claims if has_place(claim.place) and claim.place.unit != first.place.unit]
    return all(_before(first.signal, other) for other in others)


def _before(left: Signal, right: Signal) -> bool:
    """Whether a line was written before another one; not known without times.

    A borrowed time is that of an earlier line: the line itself may be later.
    """
    if left.time is None or right.time is None or (left.stream == right.stream and not (left.timed and right.timed)):
        return False  # several processes write one log as their buffers happen to be flushed
    if left.stream == right.stream:
        return left.time < right.time
    return left.timed and left.time + CLOCK_SKEW < right.time


def to_suspect(claim: SuspectClaim, why: str) -> Suspect:
    """Return the place of a claim as a suspect, without a score."""
    place, resource = claim.place, claim.signal.resource
    return Suspect(
        kind="gpu" if claim.pci else "rank" if place.rank is not None else "node",
        node=place.node,
        rank=place.rank,
        local_rank=place.local if place.rank is not None else None,
        pod=resource.container,
        gpu=GpuRef(pci=claim.pci) if claim.pci else None,
        why=why,
    )


def with_scores(found: Iterable[Suspect]) -> tuple[Suspect, ...]:
    """Score suspects by their order: 1, 1/2, 1/3 and so on."""
    return tuple(replace(item, score=round(1.0 / (at + 1), 3)) for at, item in enumerate(found))


def with_evidence(suspect: Suspect, place: int, quoted: Sequence[EvidenceItem]) -> Suspect:
    """Attach the quoted evidence of the suspect's rank or node; for the first suspect all of it where none matches."""
    if suspect.evidence or suspect.kind == "job":
        return suspect
    same = [
        item for item in quoted if item.rank == suspect.rank and (suspect.rank is not None or item.node == suspect.node)
    ]
    same = same or ([item for item in quoted if item.node == suspect.node] if suspect.node is not None else [])
    same = same or (list(quoted) if place == 0 else [])
    return replace(suspect, evidence=tuple(item.id for item in same[:EVIDENCE_SHOWN]))
