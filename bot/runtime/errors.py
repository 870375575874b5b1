"""Errors of the use cases, and exit statuses of the command.

0 a report was made, 2 bad usage or unreadable input, 3 nothing could be collected. With `--exit-decision` the status is the
decision: 0 nothing failed, then one for each advice, and one for "it failed and nobody can say what to do".
"""

from __future__ import annotations

from collections.abc import Mapping

from kb.errors import SignalboxError
from kb.report import Advice, Report

DECISIONS: Mapping[Advice, int] = {
    "none": 0,
    "requeue": 10,
    "requeue_without": 11,
    "restart_in_place": 12,
    "resubmit": 13,
    "wait": 14,
    "fix_first": 15,
}
UNDECIDED = 16


class NothingCollected(SignalboxError):  # noqa: N818 - an outcome, not a mistake
    """Of all that was asked for, nothing could be read."""


def exit_status(error: SignalboxError) -> int:
    """The status that a script sees for an error."""
    return 3 if isinstance(error, NothingCollected) else 2


def decision_status(report: Report) -> int:
    """The status that a requeue wrapper sees."""
    if report.verdict in ("no_match", "insufficient_evidence"):
        return UNDECIDED
    return DECISIONS[report.decision.advice]
