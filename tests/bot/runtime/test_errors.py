"""The exit status that gives a requeue wrapper the decision."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.runtime.errors import decision_status
from kb.report import Decision, Exclusion
from tests.support.bot_samples import FALLEN_GPU


@pytest.mark.parametrize(
    ("decision", "status"),
    [
        (Decision("requeue_without", (Exclusion("node-b", "job", ""),)), 11),
        (Decision("requeue_without", find_cause=True), 15),
        (Decision("fix_first", find_cause=True), 15),
        (Decision("fix_first"), 15),
        (Decision("requeue"), 10),
        (Decision("none"), 16),
    ],
)
def test_a_job_is_begun_again_only_without_a_node_that_is_named(decision: Decision, status: int) -> None:
    """A wrapper that excludes nobody would start the job on the same faulty node."""
    assert decision_status(replace(FALLEN_GPU, verdict="fault", decision=decision)) == status
