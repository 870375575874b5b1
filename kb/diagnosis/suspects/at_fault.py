"""Name who is at fault, by the best evidence available."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from kb.diagnosis.findings import Finding
from kb.diagnosis.ranking import Ranked
from kb.diagnosis.suspects.accused import ALL_ALIKE, hardware_suspects, most_named, named_by_others, shared_by_job
from kb.diagnosis.suspects.call_sites import elsewhere_in_code
from kb.diagnosis.suspects.claims import (
    SUSPECTS,
    WAITING_FAULTS,
    EvidenceWeight,
    SuspectClaim,
    claims_of,
    recent_claims,
    waits_for_others,
)
from kb.diagnosis.suspects.ended import first_beside_waiting, first_ended
from kb.diagnosis.suspects.late import came_too_late
from kb.diagnosis.suspects.launcher import from_launcher
from kb.diagnosis.suspects.mismatch import mismatching_ranks
from kb.diagnosis.suspects.missing import JobLayout, missing_among_waiting, only_silent_rank, waiting_ranks
from kb.diagnosis.suspects.ranking import first_in_time, whole_job, with_evidence, with_scores
from kb.diagnosis.suspects.sighting import BY_LAUNCHER, OWN_NUMBER
from kb.facts.topology import Place, Places, names_a_node
from kb.model import OF_A_NODE
from kb.regex.lazy import lazy_compile
from kb.report import REPORTED, SCHEDULER_ENDED, WAITING, WHOLE_JOB, EvidenceItem, GpuRef, Suspect

_JOB_FAULTS = frozenset({"time_limit", "cancelled", "unschedulable"})  # faults that hit a job as a whole
# The same on all ranks, or of a step that all ranks make together.
_RUN_METRICS = frozenset({"loss", "grad_norm", "learning_rate", "loss_scale", "step_time", "throughput"})
_RUN_DETECTORS = frozenset(
    {"loss_not_finite", "loss_spike", "lr_stuck", "lr_off_schedule", "loss_scale_minimum", "throughput_drop"}
)
_IN_GROUP = lazy_compile(r"\[(?:PG (?:ID )?0 [^\]\n]{0,160})?Rank (\d{1,6})\] (?=.{0,60}(?:[Ww]atchdog|NCCL|thread))")
_OTHER_GROUP = lazy_compile(r"\[PG (?:ID (?!0[ \]])|(?!ID |0[ \]]))")
_CANCELLED = lazy_compile(r"\*\*\* (?:JOB|STEP) \S{1,80} ON \S{1,80} CANCELLED AT ")


def at_fault(ranked: Ranked, layout: JobLayout, quoted: Sequence[EvidenceItem]) -> tuple[Suspect, ...]:
    """Return the suspects, at most `SUSPECTS`; none where nothing points to one."""
    best, facts, places = ranked.best, layout.facts, layout.places
    if not best.rule.patterns:  # an unknown failure: its place is known
        return _of_event(best, places, quoted) or only_silent_rank(ranked, layout) or first_ended(best, layout)
    found = whole_job(quoted, WHOLE_JOB) if best.fault.id in _JOB_FAULTS else _compared(best, places)
    if (
        not found and not best.ranks
    ):  # a hang belongs to no rank; the missing rank is in another finding of the same fault
        found = next(filter(None, (_compared(finding, places) for finding in ranked.findings)), ())
    found = found or mismatching_ranks(ranked, facts, places)
    if not found:
        claims = recent_claims(
            [claim for finding in ranked.findings for claim in claims_of(finding, places, facts)], best
        )
        ended = () if _of_another_job(best, places) else _as_reporters(first_ended(best, layout), ranked, layout)
        found = _by_evidence(claims, ranked, layout, quoted) or ended
        if ended and [(item.kind, item.node) for item in found] == [("node", ended[0].node)]:
            found = ended  # the one process of that node that ended by itself
        found = _process_of_node(found, best)
    found = tuple(_on_nodes(found)[:SUSPECTS])
    if best.fault.id == "straggler" and facts.evidence.panels:
        from kb.diagnosis.suspects.gpu_state import with_gpu_states  # noqa: PLC0415 - numpy

        found = with_gpu_states(found, facts.evidence, best.first.time)
    return tuple(with_evidence(item, place, quoted) for place, item in enumerate(found))


def _of_event(best: Finding, places: Places, quoted: Sequence[EvidenceItem]) -> tuple[Suspect, ...]:
    """Return the ranks, or the node, on which an unexplained event happened, the first of them first."""
    who, why = best.first.resource, best.first.captures.get("why", "")
    ranks = [rank for rank in (who.rank, *sorted(best.ranks - {who.rank})) if rank is not None]
    if len(ranks) > 1 and len(ranks) >= ALL_ALIKE * places.world:
        return whole_job(quoted, f"seen on {places.shared_by(frozenset(ranks))}")
    found = [
        Suspect("rank", places.node_of(rank) or (who.node if rank == who.rank else None), rank, why=why)
        for rank in ranks
    ]
    if not found and who.node is not None:
        found = [Suspect("node", who.node, why=why)]
    found = _on_nodes(found)[:SUSPECTS]
    return tuple(with_evidence(item, place, quoted) for place, item in enumerate(with_scores(found)))


def _on_nodes(found: Sequence[Suspect]) -> list[Suspect]:
    """Return the suspects, none of them on a node that is only called localhost."""
    named = (item if item.node is None or names_a_node(item.node) else replace(item, node=None) for item in found)
    return [item for item in named if item.kind != "node" or item.node is not None]


def _compared(best: Finding, places: Places) -> tuple[Suspect, ...]:
    """Return those that a comparison of all ranks singled out (kb.hangs.observe), in its order."""
    chosen = [signal for signal in best.signals if signal.compared]
    chosen = [signal for signal in chosen if signal.resource.rank is not None or signal.resource.node is not None]
    chosen.sort(key=lambda item: int(item.captures.get("place") or 0))
    return tuple(
        Suspect(
            kind="rank" if item.resource.rank is not None else "gpu" if item.resource.gpu is not None else "node",
            node=item.resource.node or places.node_of(item.resource.rank),
            rank=item.resource.rank,
            local_rank=item.resource.local_rank,
            pod=item.resource.container,
            gpu=GpuRef(index=int(item.resource.gpu)) if item.resource.gpu and item.resource.gpu.isdigit() else None,
            score=round(1.0 / (at + 1), 3),
            why="differs from all other ranks" if at == 0 else "differs from most other ranks",
        )
        for at, item in enumerate(chosen[:SUSPECTS])
    )


def _by_evidence(
    claims: Sequence[SuspectClaim], ranked: Ranked, layout: JobLayout, quoted: Sequence[EvidenceItem]
) -> tuple[Suspect, ...]:
    """Return the suspects of the strongest kind of claim."""
    places = layout.places
    by = {weight: [claim for claim in claims if claim.weight is weight] for weight in EvidenceWeight}
    own, waits = by[EvidenceWeight.OWN], by[EvidenceWeight.WAITS]
    hardware = by[EvidenceWeight.HARDWARE]
    found = (
        shared_by_job(hardware, frozenset(), places, quoted) or hardware_suspects(hardware, own, places)
        if hardware
        else ()
    )
    if found:
        return found
    if own:
        return _by_own_lines(own, ranked, layout, quoted)
    if by[EvidenceWeight.TOLD]:
        return named_by_others(by[EvidenceWeight.TOLD])
    if waits or ranked.best.is_symptom:
        rumours = Counter(item.place.node for item in by[EvidenceWeight.RUMOUR])
        return (
            first_beside_waiting(waiting_ranks(layout), layout)
            or missing_among_waiting(waits, ranked, layout, rumours)
            or came_too_late(ranked, layout)
            or elsewhere_in_code(ranked, layout)
            or _of_rumours(by[EvidenceWeight.RUMOUR], waits)
            or shared_by_job(waits, ranked.best.ranks, places, quoted)
            or (
                _waiting(waits, ranked.best) if ranked.best.is_symptom or ranked.best.fault.id in WAITING_FAULTS else ()
            )
        )
    return _without_claims(ranked, layout, quoted)


def _by_own_lines(
    own: Sequence[SuspectClaim], ranked: Ranked, layout: JobLayout, quoted: Sequence[EvidenceItem]
) -> tuple[Suspect, ...]:
    """Return those whose own lines show it; nobody of what one rank logs for the whole run."""
    if _of_the_whole_run(own, ranked.best, layout):
        return ()
    if ranked.best.fault.id == "killed" and (first := _lost_before(own, ranked, layout)):
        return first
    found = shared_by_job(own, ranked.best.ranks, layout.places, quoted)
    if found:
        return found
    first = first_in_time(own)
    if _is_only_node(first, ranked.best, layout):
        return (replace(first[0], why=REPORTED),)
    return _as_reporters(first, ranked, layout)


def _is_only_node(found: Sequence[Suspect], best: Finding, layout: JobLayout) -> bool:
    """Whether the only suspect is the only node that these logs name: that its name is before a message accuses no machine."""
    alone = len(found) == 1 and found[0].kind == "node" and len(layout.places.nodes) <= 1
    return alone and best.fault.domain not in OF_A_NODE


def _as_reporters(found: tuple[Suspect, ...], ranked: Ranked, layout: JobLayout) -> tuple[Suspect, ...]:
    """Return suspects as reporters if the fault lies in what ranks share; those that other ranks lost may be at fault after all."""
    best = ranked.best
    shared = best.rule.shared or best.fault.shared
    if shared is None or (shared == "usually" and _stand_apart(found, layout)):
        return found
    return tuple(suspect if suspect.kind == "job" else replace(suspect, why=REPORTED) for suspect in found)


def _stand_apart(found: Sequence[Suspect], layout: JobLayout) -> bool:
    """Whether other ranks are seen not to share it: they lost these, or have logs of their own without it."""
    ranks = {suspect.rank for suspect in found if suspect.rank is not None}
    own = {stream.summary.ref.resource.rank for stream in layout.facts.of_kind("job")} - {None}
    return bool(ranks) and bool((waiting_ranks(layout) | own) - ranks)


def _of_the_whole_run(own: Sequence[SuspectClaim], best: Finding, layout: JobLayout) -> bool:
    """Whether all is a figure of the whole run, such as its loss, in the only log with steps: one rank logs it for all."""
    steps = sum(bool(stream.points) for stream in layout.facts.streams)
    if steps != 1 or layout.places.world < 2 or any(claim.signal.kind != "series" for claim in own):
        return False
    return all(
        (pattern.detect is not None and pattern.detect.name in _RUN_DETECTORS)
        or (pattern.series is not None and pattern.series.metric in _RUN_METRICS)
        for pattern in best.rule.patterns
    )


def _of_rumours(rumours: Sequence[SuspectClaim], waits: Sequence[SuspectClaim]) -> tuple[Suspect, ...]:
    """Return those that lines name most. Only another rank is a peer; a line of no rank is a launcher's."""
    peers = [claim for claim in rumours if claim.teller is not None and _speaks_of_another(claim.teller, claim.place)]
    return most_named(rumours, "reported by peers" if peers else BY_LAUNCHER, waits)


def _speaks_of_another(teller: Place, place: Place) -> bool:
    if teller.rank is not None:
        return teller.rank != place.rank
    return teller.node is not None and place.node is not None and teller.node != place.node


def _waiting(waits: Sequence[SuspectClaim], best: Finding) -> tuple[Suspect, ...]:
    """Return those that wait, where nothing shows for whom.

    Only those that the finding's own lines are of: where these report that another process died, the others survived it.
    """
    own = {(signal.stream, signal.offset) for signal in best.signals}
    claims = [wait for wait in waits if (wait.signal.stream, wait.signal.offset) in own]
    found = first_in_time(claims)
    if not any(waits_for_others(claim.signal) or claim.signal.kind == "watchdog" for claim in claims):
        return found  # a call that was refused, a process that was killed: no wait is told
    return tuple(replace(suspect, why=WAITING) for suspect in found)


def _lost_before(own: Sequence[SuspectClaim], ranked: Ranked, layout: JobLayout) -> tuple[Suspect, ...]:
    """Where all that were killed had lost a peer before, return the silent one."""
    symptoms = [finding.ranks for finding in layout.findings if finding.is_symptom]
    victims = frozenset[int]().union(*symptoms)
    return (
        missing_among_waiting((), ranked, layout, {})
        if all(suspect_claim.place.rank in victims for suspect_claim in own)
        else ()
    )


def _of_another_job(best: Finding, places: Places) -> bool:
    """Whether the lines name ranks that the job cannot have by what other logs say of its size: these may be of another job."""
    return bool(best.ranks) and not any(places.allows(rank) for rank in best.ranks)


def _without_claims(ranked: Ranked, layout: JobLayout, quoted: Sequence[EvidenceItem]) -> tuple[Suspect, ...]:
    """Return suspects where no line says whose it is."""
    places = layout.places
    if _of_another_job(ranked.best, places):
        return ()
    if ranked.best.fault.id == "node_lost":
        return missing_among_waiting((), ranked, layout, {})
    if any(_CANCELLED.search(signal.line) for signal in ranked.best.signals):  # `ON` names where the message comes from
        return whole_job(quoted, SCHEDULER_ENDED)
    return (
        _as_reporters(from_launcher(ranked.best, layout, quoted), ranked, layout)
        or only_silent_rank(ranked, layout)
        or _by_group_number(ranked.best, places)
    )


def _process_of_node(found: tuple[Suspect, ...], best: Finding) -> tuple[Suspect, ...]:
    """Return the one rank of the only suspected node that a line of the finding names, such as its launcher's; else what was found."""
    if [item.kind for item in found] != ["node"]:
        return found
    who = [signal.resource for signal in best.signals if signal.resource.rank is not None]
    ranks = {item.rank for item in who if item.node == found[0].node}
    return (
        (replace(found[0], kind="rank", rank=ranks.pop()),)
        if len(ranks) == 1 == len({item.rank for item in who})
        else found
    )


def _by_group_number(best: Finding, places: Places) -> tuple[Suspect, ...]:
    """Return the one process that the collective library's threads name by its number in the default process group.

    Other groups count their members from 0, too; lines that name such a group, or several numbers, tell nothing.
    """
    lines = [signal.line for signal in best.signals]
    if any(_OTHER_GROUP.search(line) for line in lines):
        return ()
    numbers = {int(found) for line in lines for found in _IN_GROUP.findall(line)}
    ranks = [rank for rank in numbers if places.allows(rank)]
    why = OWN_NUMBER
    return with_scores(Suspect("rank", places.node_of(rank), rank, why=why) for rank in ranks if len(ranks) == 1)
