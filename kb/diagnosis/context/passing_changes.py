"""Changes of a metric that did no harm, as the run completed: observations, not faults."""

from __future__ import annotations

from collections.abc import Sequence

from kb.diagnosis.findings import Finding
from kb.facts.completion.completion import Completion
from kb.facts.job_facts import Facts
from kb.regex.lazy import lazy_compile
from kb.scanning.summary import tail_lines

_NUMBER = lazy_compile(r"\d+")
_COLLECTIVE_FAILED = lazy_compile(
    r"raised the following async exception: |Watchdog caught collective operation timeout|\bDistBackendError: "
)
MODERATE = 2.5  # factor of a slow-down below which a shared machine explains it
LATE_ERROR = "reported after the last step, before the end; the run completed all the same"
NO_FAULT = "an observation, not a fault: the run completed"
_SLOWER = frozenset({"throughput_drop", "straggler"})


def without_passing_changes(findings: Sequence[Finding], end: Completion) -> list[Finding]:
    """Return the findings without changes of a metric that a run survived which provably completed."""
    return [finding for finding in findings if not (_completed(end) and _has_passed(finding))]


def passing_changes(findings: Sequence[Finding], end: Completion) -> list[Finding]:
    """Return what only numbers of a run show that provably completed, and that its next run need not repeat.

    Its steps became moderately slower, or its loss left its level and came back. A busy machine or file system slows a
    healthy run down as much. A rank that is slower than others counts as a fault, as do steps that take a multiple of
    their time, memory that grows, and a loss that ends far from its level.
    """
    return [finding for finding in findings if _completed(end) and _has_passed(finding)]


def late_errors(end: Completion, facts: Facts) -> list[tuple[int, int, str]]:
    """Return stream, offset and text of errors of collectives between the last step and the reported end of a completed run.

    Its work is done, but a rank may have left, and the exit status need not be 0. Of lines that differ only in numbers, the
    first counts.
    """
    ends = {sign.stream: sign.offset for sign in end.proof if sign.stream is not None} if _completed(end) else {}
    found: dict[str, tuple[int, int, str]] = {}
    for index, stop in ends.items():
        stream = facts.streams[index]
        last = stream.points[-1].offset if stream.points else stop
        for at, line in tail_lines(stream.summary) if last < stop else ():
            if last < at < stop and _COLLECTIVE_FAILED.search(line[:600]):
                found.setdefault(_NUMBER.sub("#", line)[:160], (index, at, line[:512]))
    return list(found.values())


def _completed(end: Completion) -> bool:
    return end.proven and end.how == "completed"


def _has_passed(finding: Finding) -> bool:
    measured = all(signal.kind == "series" for signal in finding.signals)
    if not measured or finding.ranks or any(signal.compared for signal in finding.signals):
        return False
    if finding.fault.id in _SLOWER:
        return _is_moderate(finding)
    back = finding.first.captures.get("end") == "back"
    return finding.fault.id == "loss_spike" and (back or finding.role == "contributing")


def _is_moderate(finding: Finding) -> bool:
    """Whether a slow-down is below the factor that a shared machine explains; false if its amount is not known."""
    try:
        level, now = (float(finding.first.captures[name]) for name in ("level", "value"))
    except (KeyError, ValueError):
        return False
    return min(level, now) > 0 and max(level, now) < MODERATE * min(level, now)
