"""How sure it is that a run completed, and from what."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kb.report import Report

_WELL = frozenset({"COMPLETED", "SUCCEEDED"})
_ERRORS = "errors were reported before its end"  # as the summary of such a run says


def certainty(report: Report) -> str:
    """Return how sure a normal end is and from what, as `likely. 2 logs show the end; the last of its 100 steps is logged`; empty for other runs."""
    return ". ".join(filter(None, level_and_reason(report)))


def level_and_reason(report: Report) -> tuple[str, str]:
    """Return how sure a normal end is, `likely` or `possible`, and from what; both are empty for other runs."""
    if report.verdict != "no_fault" or report.phase != "completed":
        return "", ""
    grounds = "; ".join(_grounds(report))
    doubt = f"But {_ERRORS}" if _ERRORS in report.summary else ""
    return "likely" if grounds else "possible", ". ".join(filter(None, (f"{grounds[:1].upper()}{grounds[1:]}", doubt)))


def _grounds(report: Report) -> Iterator[str]:
    state, reached = (report.job.state or "").strip().upper(), report.progress
    if state in _WELL:
        yield f"the scheduler reports {state}"
    ends = {item.evidence.source for item in report.indicators.events if item.evidence is not None}
    if ends:
        yield "1 log shows the end" if len(ends) == 1 else f"{len(ends):,} logs show the end"
    if reached.last_iteration is not None and reached.last_iteration == reached.total_iterations:
        yield f"the last of its {reached.total_iterations:,} steps is logged"
