"""Changes of a metric that did no harm, as the run completed: observations, not faults."""

from __future__ import annotations

from collections.abc import Sequence

from kb.diagnosis.findings import Finding
from kb.facts.completion import Completion

# faults that cost time or memory as long as the run lasts, and leave its result as it is
_COST = frozenset({"throughput_drop", "straggler", "memory_leak"})
NO_FAULT = "an observation, not a fault: the run completed"


def without_passing_changes(findings: Sequence[Finding], end: Completion) -> list[Finding]:
    """Return the findings without changes of a metric that a run survived which provably completed."""
    passed = set(map(id, passing_changes(findings, end)))
    return [finding for finding in findings if id(finding) not in passed]


def passing_changes(findings: Sequence[Finding], end: Completion) -> list[Finding]:
    """Return what only numbers of a run show that provably completed, and that its result does not suffer from.

    Its steps became slower, its memory grew, or its loss left its level and came back. A rank that is slower than others
    counts as a fault, and so does a loss that ends far from its level.
    """
    if not (end.proven and end.how == "completed"):
        return []
    return [finding for finding in findings if _has_passed(finding)]


def _has_passed(finding: Finding) -> bool:
    measured = all(signal.kind == "series" for signal in finding.signals)
    if not measured or finding.ranks or any(signal.compared for signal in finding.signals):
        return False
    back = finding.first.captures.get("end") == "back"
    return finding.fault.id in _COST or (finding.fault.id == "loss_spike" and (back or finding.role == "contributing"))
