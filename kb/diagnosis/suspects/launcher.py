"""Suspects from the launchers' failure blocks, where no line names its rank."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from kb.diagnosis.findings import Finding, reduced
from kb.diagnosis.suspects.accused import ALL_ALIKE
from kb.diagnosis.suspects.claims import SUSPECTS
from kb.diagnosis.suspects.missing import SEVERAL, JobLayout, waiting_ranks
from kb.diagnosis.suspects.ranking import whole_job, with_scores
from kb.diagnosis.suspects.sighting import FIRST_FAILED
from kb.facts.job_facts import Facts
from kb.facts.log.chained_exceptions import structure_start
from kb.model import Structure
from kb.regex.lazy import lazy_compile
from kb.report import EvidenceItem, Suspect

EXIT_SIGNALS: Mapping[str, frozenset[str]] = {
    "host_oom": frozenset({"SIGKILL"}),
    "killed": frozenset({"SIGKILL"}),
    "segfault": frozenset({"SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT"}),
}
MANY = 4  # tracebacks of one error, from which on one process alone did not write them
_LAUNCHING = lazy_compile(r"torch/distributed/(?:run|launch|elastic/\S{1,60}|launcher/\S{1,40})\.py:\d")
# As an allocation that failed, or a tensor on another device than the others, names its device.
_DEVICE = lazy_compile(
    r"\bGPU (\d{1,2})(?:;| has a total capacity)|two devices, (?:cpu and cuda:(\d{1,2})\b|cuda:(\d{1,2}) and cpu)"
)


# Launchers


def from_launcher(best: Finding, layout: JobLayout, quoted: Sequence[EvidenceItem]) -> tuple[Suspect, ...]:
    """Return suspects from the launchers' failure blocks that agree with how the decisive line ends."""
    places = layout.places
    blocks = [] if _of_launcher(best, layout.facts) else layout.facts.structures("elastic_failure")
    items = [item for _, item in blocks if ends_like(item, best)]
    if why := next(_of_all(best, items, layout), ""):
        return whole_job(quoted, why)
    roots = [(index, item) for index, item in blocks if ends_like(item, best) and item.fields.get("root") == "yes"]
    if not best.is_symptom:  # one that timed out, or lost another, did not write the decisive line
        roots = [root for root in roots if root[1].fields.get("rank") not in waiting_ranks(layout) - best.ranks]
    roots.sort(key=lambda root: (str(root[1].fields.get("time") or "~"), root[1].offset))
    why = FIRST_FAILED
    if (attempts := _attempts(roots)) > 1:
        why, roots = f"{why} in the last of {attempts} runs", roots[-1:]
    roots = [root for root in roots if not _over_before(root, best)]
    found: dict[int, Suspect] = {}
    for _, item in roots[:SUSPECTS]:
        number = item.fields.get("rank")
        if isinstance(number, int) and number >= 0:
            host = places.node(str(item.fields.get("host") or "") or None) or places.node_of(number)
            found.setdefault(number, Suspect("rank", host, number, why=why))
    return with_scores(found.values())


def _over_before(root: tuple[int, Structure], best: Finding) -> bool:
    """Whether a launcher had reported the end of a process before the decisive line was written to the same log: it is not that process's line."""
    stream, item = root
    return stream == best.first.stream and item.end <= best.first.offset


def _shared(best: Finding, findings: Sequence[Finding]) -> bool:
    """Whether the processes that ended can have shown the failure: none does if they show another one more often."""
    others = (item for item in findings if item.fault.id != best.fault.id and not item.is_symptom)
    return best.fault.id in EXIT_SIGNALS or all(_lines(item) <= _lines(best) for item in others)


def _lines(finding: Finding) -> int:
    return len({(signal.stream, signal.offset) for signal in finding.signals})


def of_last_attempt(best: Finding, facts: Facts) -> tuple[Finding, int]:
    """Return a finding as the last attempt of the job shows it, and the number of attempts that a launcher reports."""
    roots = [(index, item) for index, item in facts.structures("elastic_failure") if item.fields.get("root") == "yes"]
    attempts = _attempts(roots)
    if attempts == 1:
        return best, 1
    *_, (before, previous), (stream, _) = sorted(roots, key=lambda root: str(root[1].fields.get("time") or ""))
    start = previous.end if before == stream else 0
    own = tuple(item for item in best.signals if item.stream == stream and item.offset >= start)
    return (reduced(best, own) or best), attempts


def _attempts(roots: Sequence[tuple[int, Structure]]) -> int:
    """Return the number of attempts of one launcher: the same host reports a first failure each time, at another time."""
    hosts = {str(item.fields.get("host") or "") for _, item in roots}
    times = {str(item.fields.get("time") or "") for _, item in roots} - {""}
    return len(times) if len(hosts) == 1 and len(times) == len(roots) else 1


def _of_launcher(best: Finding, facts: Facts) -> bool:
    """Whether a launcher raised the failure itself, so that the ends of its workers say nothing about it."""
    return any(
        structure_start(exception) <= signal.offset < exception.end
        and _LAUNCHING.search(str(exception.fields.get("frames") or ""))
        for signal in best.signals
        for exception in facts.streams[signal.stream].exceptions
    )


def of_device(line: str) -> int | None:
    """Return the index on the node of the GPU that a line names."""
    found = _DEVICE.search(line)
    return int(next(filter(None, found.groups()))) if found else None


def _devices(best: Finding) -> int:
    """Return how many GPUs the lines name by their index on the node; interleaved tracebacks still do."""
    return len({of_device(signal.line) for signal in best.signals} - {None})


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
    if not _shared(best, layout.findings):
        items, ranks = [], set()  # what ended the others is not shown
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
    in_traceback = layout.facts.streams[best.first.stream].in_traceback(best.first.offset)
    if in_traceback and _lines(best) >= MANY and len(items) == 1:
        yield f"raised {best.count} times; the launcher lists one process"


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


def ends_like(structure: Structure, best: Finding) -> bool:
    """Whether a process of the launcher's block could have printed the decisive line."""
    signal = str(structure.fields.get("signal") or "")
    wanted = EXIT_SIGNALS.get(best.fault.id)
    if signal == "SIGTERM":
        return False
    if wanted is not None and (best.first.kind != "exception" or signal):
        return signal in wanted
    if best.first.kind == "exception" and structure.fields.get("exitcode") not in (1, None):
        return False  # an exception that nothing catches ends Python with status 1
    return not signal or best.first.kind != "exception"
