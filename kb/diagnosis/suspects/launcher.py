"""Suspects from the launchers' failure blocks, where no line names its rank."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from kb.diagnosis.findings import Finding
from kb.diagnosis.suspects.accused import ALL_ALIKE
from kb.diagnosis.suspects.claims import SUSPECTS
from kb.diagnosis.suspects.missing import SEVERAL, JobLayout
from kb.diagnosis.suspects.ranking import whole_job, with_scores
from kb.facts.job_facts import Facts
from kb.model import Structure
from kb.regex.lazy import lazy_compile
from kb.report import EvidenceItem, Suspect

EXIT_SIGNALS: Mapping[str, frozenset[str]] = {
    "host_oom": frozenset({"SIGKILL"}),
    "killed": frozenset({"SIGKILL"}),
    "segfault": frozenset({"SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT"}),
}
_DEVICE = lazy_compile(r"\bGPU (\d{1,2})(?:;| has a total capacity)")  # as an allocation that failed names its device


# Launchers


def from_launcher(best: Finding, layout: JobLayout, quoted: Sequence[EvidenceItem]) -> tuple[Suspect, ...]:
    """Return suspects from the launchers' failure blocks that agree with how the decisive line ends."""
    places = layout.places
    items = [item for _, item in layout.facts.structures("elastic_failure") if _ends_like(item, best)]
    if why := next(_of_all(best, items, layout), ""):
        return whole_job(quoted, why)
    items = [item for item in items if item.fields.get("root") == "yes"]
    items.sort(key=lambda item: (str(item.fields.get("time") or "~"), item.offset))
    found: dict[int, Suspect] = {}
    for item in items[:SUSPECTS]:
        number = item.fields.get("rank")
        if isinstance(number, int) and number >= 0:
            host = places.node(str(item.fields.get("host") or "") or None) or places.node_of(number)
            found.setdefault(number, Suspect("rank", host, number, why="first to fail according to the launcher"))
    return with_scores(found.values())


def _devices(best: Finding) -> int:
    """Return how many GPUs the lines name by their index on the node; interleaved tracebacks still do."""
    return len({found[1] for signal in best.signals if (found := _DEVICE.search(signal.line))})


def _rest_stopped(ranks: Collection[int], layout: JobLayout) -> bool:
    """Whether the launcher stopped all other ranks, so that they could not fail of the same."""
    blocks = [item for _, item in layout.facts.structures("elastic_failure")]
    stopped = {item.fields.get("rank") for item in blocks if item.fields.get("signal") == "SIGTERM"}
    return len(stopped | set(ranks)) >= ALL_ALIKE * layout.places.least_world


def _of_all(best: Finding, items: Sequence[Structure], layout: JobLayout) -> Iterator[str]:
    """Yield why it concerns the whole job, so that the process which ended first does not stand out."""
    places, world = layout.places, layout.places.least_world
    ranks = {rank for item in items if isinstance(rank := item.fields.get("rank"), int)}
    raised = best.first.kind == "exception"
    if several := _of_several_launchers(items, layout.facts):
        yield several
    if len(ranks) > 1 and len(ranks) >= ALL_ALIKE * world:
        yield f"{places.share(len(ranks))} ended the same way"
    if raised and len(ranks) > 1 and best.count >= len(ranks) and _rest_stopped(ranks, layout):
        yield f"all {len(ranks)} ranks that ended by themselves ended the same way"
    if raised and places.world > 1 and best.count >= ALL_ALIKE * world:
        yield f"seen {best.count} times in a job of {places.size}"
    if (devices := _devices(best)) > 1 and devices >= ALL_ALIKE * world:
        yield f"its lines name {devices} GPUs"
    if shown := _in_most_logs(best, layout.facts):
        yield shown


def _of_several_launchers(items: Sequence[Structure], facts: Facts) -> str:
    """Return how many processes ended alike where launchers number their ranks each from 0; empty where they do not.

    There, a rank is no process of its own: the same rank is reported on several hosts.
    """
    launched = {_process(item) for _, item in facts.structures("elastic_failure")}
    if len(launched) == len({rank for _, rank in launched}) or len({host for host, _ in launched}) < SEVERAL:
        return ""
    ended = {_process(item) for item in items}
    if len(ended) < SEVERAL or len(ended) < ALL_ALIKE * len(launched):
        return ""
    share = "all" if ended == launched else f"{len(ended)} of the"
    return f"{share} {len(launched)} processes that the launchers report ended the same way"


def _process(block: Structure) -> tuple[str, int]:
    """Return the host and the rank in a launcher's block."""
    rank = block.fields.get("rank")
    return str(block.fields.get("host") or ""), rank if isinstance(rank, int) else -1


def _in_most_logs(best: Finding, facts: Facts) -> str:
    """Return how many logs show it where nearly all of several do, so that none stands out; else empty."""
    jobs = {index for index, stream in enumerate(facts.streams) if stream.summary.ref.kind == "job"}
    shown = jobs & {signal.stream for signal in best.signals}
    if len(shown) < SEVERAL or len(shown) < ALL_ALIKE * len(jobs):
        return ""
    return "it is in all logs of the job" if shown == jobs else f"it is in {len(shown)} of {len(jobs)} logs of the job"


def _ends_like(structure: Structure, best: Finding) -> bool:
    """Whether a process of the launcher's block could have printed the decisive line."""
    signal = str(structure.fields.get("signal") or "")
    wanted = EXIT_SIGNALS.get(best.fault.id)
    if signal == "SIGTERM":
        return False
    if wanted is not None and (best.first.kind != "exception" or signal):
        return signal in wanted
    return not signal or best.first.kind != "exception"
