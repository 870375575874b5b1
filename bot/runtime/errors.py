"""Errors of the use cases, and exit statuses of the command.

0: a report was made. 2: bad usage or unreadable input. 3: nothing could be collected. With `--exit-decision` the status is the
decision: 0 if the evidence shows that nothing failed, one status for each advice, and one if what to do cannot be told.
"""

from __future__ import annotations

from collections.abc import Mapping

from kb.errors import SignalboxError
from kb.report import Advice, Report

DECISIONS: Mapping[Advice, int] = {
    "requeue": 10,
    "requeue_without": 11,
    "restart_in_place": 12,
    "resubmit": 13,
    "wait": 14,
    "fix_first": 15,
}
NO_FAULT = 0
UNDECIDED = 16


class NothingCollected(SignalboxError):  # noqa: N818 - an outcome, not a mistake
    """Nothing of the requested input could be read."""


def exit_status(error: SignalboxError) -> int:
    """Return the exit status for an error."""
    return 3 if isinstance(error, NothingCollected) else 2


def decision_status(report: Report) -> int:
    """Return the exit status for a requeue wrapper."""
    if report.verdict == "no_fault":
        return NO_FAULT
    if report.verdict != "fault":
        return UNDECIDED
    return DECISIONS["fix_first"] if report.decision.find_cause else DECISIONS.get(report.decision.advice, UNDECIDED)
