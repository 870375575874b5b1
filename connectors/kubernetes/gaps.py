"""Gaps in the evidence of a workload that was found: deleted pods, unknown ranks, earlier runs, other jobs of the same name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from connectors.base.contract import LOGS_GONE
from connectors.kubernetes.jobs import FoundWorkload
from kb.model import Gap

SHOWN = 5  # names in a message
_LOST = {
    "nodes": "conditions, taints and topology of the nodes",
    "pods": "what the missing pods did",
    "workloads": "which workload the pods belong to",
}


def found_gaps(found: FoundWorkload, source: str) -> Iterator[Gap]:
    """Yield what could not be fetched, and what Kubernetes does not know."""
    meaning = found.meaning
    name = meaning.record.job.name or ""
    for what, failed in found.lacking:
        yield failed.gap(source, scope=what, rules_out=_LOST.get(what, ""))
    if not meaning.pods:
        if any(what == "pods" for what, _ in found.lacking):
            return
        yield Gap(
            "no_pods",
            source,
            "the job has no pods, or no longer has any",
            scope=name,
            rules_out="logs, exits and nodes of its pods",
        )
        return
    if meaning.ranks.inferred:
        yield Gap(
            "ranks_inferred",
            source,
            f"nothing tells which ranks run in which pod; assumed {meaning.ranks.inferred}",
            name,
        )
    elif not meaning.ranks.of:
        yield Gap("ranks_unknown", source, "nothing tells which ranks run in which pod", name, rules_out="ranks by pod")
    first = meaning.record.attempts[0].number
    if first > 0:
        reason = f"nothing is left of {first} earlier runs: Kubernetes keeps only the last exit of a container"
        yield Gap("attempts_forgotten", source, reason, name, rules_out="how the first runs ended")


def gone_pods(found: FoundWorkload, named: Iterable[str], source: str) -> Gap | None:
    """Return the gap for pods that no longer exist: those that events name, and those that the specification asks for."""
    there = {pod.name for pod in found.meaning.pods}
    gone = sorted(set(named) - there)
    missing = max(len(gone), _absent(found))
    if not missing:
        return None
    asked = max(found.meaning.size, missing + len(there))
    why = "no longer exist" if missing == len(gone) else "do not exist: they were deleted, or never created"
    return Gap(
        "pods_gone",
        source,
        f"{missing} of {asked} pods {why}; Kubernetes deletes a pod's log and exit code with it",
        scope=listing(gone) or (found.meaning.record.job.name or ""),
        asked=f"{asked} pods",
        got=f"{len(there)} pods",
        rules_out="exits and nodes of these pods, except what events say",
    )


def gone_logs(found: FoundWorkload, source: str) -> Gap | None:
    """Return the gap for the logs of pods that the specification asks for and that do not exist."""
    missing = _absent(found)
    if not missing:
        return None
    return Gap(
        LOGS_GONE,
        source,
        f"{missing} of {found.meaning.size} pods do not exist, and neither do their logs here",
        scope=found.meaning.record.job.name or "",
        got=f"logs of {len(found.meaning.pods)} pods",
        rules_out="what these pods wrote, unless a log store has it",
    )


def _absent(found: FoundWorkload) -> int:
    """Return how many of the pods that the specification asks for are missing once the job has started."""
    job = found.meaning.record.job
    begun = job.state not in (None, "PENDING", "SUSPENDED") and job.start is not None
    unlisted = any(what == "pods" for what, _ in found.lacking)
    return max(0, found.meaning.size - found.meaning.places) if begun and not unlisted else 0


def namesakes(chosen: FoundWorkload, found: Sequence[FoundWorkload], source: str) -> Gap:
    """Return the gap for other workloads of the same name."""
    ids = [item.meaning.record.job.id or "" for item in found if item is not chosen]
    mine = f"{chosen.kind.word} {chosen.meaning.record.job.id}"
    reason = f"{len(found)} workloads have this name; {mine} was read, which ran most of the window"
    hint = "name the job as namespace/name or kind/name"
    return Gap("job_ambiguous", source, f"{reason}; {hint}", scope=listing(ids), rules_out="what the others did")


def listing(names: Iterable[str]) -> str:
    """Return the first names, and how many more there are."""
    listed = list(dict.fromkeys(names))
    return ", ".join(listed[:SHOWN]) + (f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else "")
