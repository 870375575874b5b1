"""Changes of a metric that did no harm, as the run completed: observations, not faults."""

from __future__ import annotations

from collections.abc import Sequence

from kb.diagnosis.findings import Finding
from kb.facts.completion import Completion
from kb.facts.job_facts import Facts
from kb.facts.signals import Signal

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


def late_errors(findings: Sequence[Finding], end: Completion, facts: Facts) -> list[Signal]:
    """Return the first line of each finding between the last step and the reported end of a run that provably completed.

    Its work is done, but what was reported may still be wrong: a rank may have left, or the exit status may not be 0.
    """
    ends = {sign.stream: sign.offset for sign in end.proof if sign.stream is not None} if _completed(end) else {}
    found = {}
    for finding in findings:
        for signal in finding.signals:
            steps = facts.streams[signal.stream].points if signal.stream in ends else ()
            late = bool(steps) and steps[-1].offset < signal.offset < ends[signal.stream]
            if (
                late
                and not signal.survived
                and not signal.compared
                and signal.kind != "series"
                and finding.role != "context"
            ):
                found.setdefault(finding.rule.id, signal)
                break
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
