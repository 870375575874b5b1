"""Suspects from the launchers' failure blocks, where no line names its rank."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kb.diagnosis.findings import Finding
from kb.diagnosis.suspects.accused import ALL_ALIKE
from kb.diagnosis.suspects.claims import SUSPECTS
from kb.diagnosis.suspects.missing import JobLayout
from kb.diagnosis.suspects.ranking import whole_job, with_scores
from kb.facts.job_facts import Facts
from kb.model import Structure
from kb.report import EvidenceItem, Suspect

EXIT_SIGNALS: Mapping[str, frozenset[str]] = {
    "host_oom": frozenset({"SIGKILL"}),
    "killed": frozenset({"SIGKILL"}),
    "segfault": frozenset({"SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT"}),
}


# Launchers


def from_launcher(best: Finding, layout: JobLayout, quoted: Sequence[EvidenceItem]) -> tuple[Suspect, ...]:
    """Return suspects from the launchers' failure blocks that agree with how the decisive line ends."""
    places, world = layout.places, layout.places.least_world
    items = [item for _, item in layout.facts.structures("elastic_failure") if _ends_like(item, best)]
    ranks = {rank for item in items if isinstance(rank := item.fields.get("rank"), int)}
    if len(ranks) > 1 and len(ranks) >= ALL_ALIKE * world:
        return whole_job(quoted, f"{len(ranks)} of {world} ranks ended the same way")
    if best.first.kind == "exception" and len(ranks) > 1 and best.count >= len(ranks) and _rest_stopped(ranks, layout):
        return whole_job(quoted, f"all {len(ranks)} ranks that ended by themselves ended the same way")
    if best.first.kind == "exception" and places.world > 1 and best.count >= ALL_ALIKE * world:
        return whole_job(quoted, f"seen {best.count} times on {places.world} ranks")
    if _in_all_logs(best, layout.facts):
        return whole_job(quoted, "it is in all logs of the job")
    items = [item for item in items if item.fields.get("root") == "yes"]
    items.sort(key=lambda item: (str(item.fields.get("time") or "~"), item.offset))
    found: dict[int, Suspect] = {}
    for item in items[:SUSPECTS]:
        number = item.fields.get("rank")
        if isinstance(number, int) and number >= 0:
            host = places.node_of(number) or str(item.fields.get("host") or "") or None
            found.setdefault(number, Suspect("rank", host, number, why="first to fail according to the launcher"))
    return with_scores(found.values())


def _rest_stopped(ranks: Collection[int], layout: JobLayout) -> bool:
    """Whether the launcher stopped all other ranks, so that they could not fail of the same."""
    blocks = [item for _, item in layout.facts.structures("elastic_failure")]
    stopped = {item.fields.get("rank") for item in blocks if item.fields.get("signal") == "SIGTERM"}
    return len(stopped | set(ranks)) >= ALL_ALIKE * layout.places.least_world


def _in_all_logs(best: Finding, facts: Facts) -> bool:
    """Whether nearly all of several logs show it, so that none stands out."""
    logs = sum(1 for _ in facts.of_kind("job"))
    shown = {signal.stream for signal in best.signals}
    return len(shown) > 1 and len(shown) >= ALL_ALIKE * logs


def _ends_like(structure: Structure, best: Finding) -> bool:
    """Whether a process of the launcher's block could have printed the decisive line."""
    signal = str(structure.fields.get("signal") or "")
    wanted = EXIT_SIGNALS.get(best.fault.id)
    if signal == "SIGTERM":
        return False
    if wanted is not None and (best.first.kind != "exception" or signal):
        return signal in wanted
    return not signal or best.first.kind != "exception"
