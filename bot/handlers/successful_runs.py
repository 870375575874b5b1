"""Successful runs, recorded once: they show that a fix helped, and one per family and day is kept as a baseline."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256

from sqlmodel import Session

from bot.policy.routing import JobFacts, link_of
from bot.queue.payloads import KeepBaselinePayload
from bot.queue.tasks import enqueue_task
from bot.store.baselines import family_of
from bot.store.database import Database, insert_new
from bot.store.tables import GoodEndRow
from kb.model import Job
from kb.report import Report

DONE = "COMPLETED"
FOLD = 86400.0  # seconds between two kept runs of a family


@dataclass(frozen=True, slots=True)
class SuccessfulRun:
    """A run that the scheduler calls successful. `at`: when it ended, seconds since the epoch."""

    facts: JobFacts
    at: float

    @property
    def key(self) -> str:
        """The same key for this end, whoever reports it."""
        told = repr((self.facts.tenant, self.facts.cluster, self.facts.id, round(self.at)))
        return f"good:{sha256(told.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def successful_run_recorder(
    worklist: Callable[[], AbstractContextManager[Database]],
) -> Callable[[SuccessfulRun], None]:
    """Return a function that records successful runs."""

    def note(end: SuccessfulRun) -> None:
        with worklist() as store:
            store.write(lambda session: record_successful_run(session, end, datetime.now(UTC)))

    return note


def record_successful_run(session: Session, end: SuccessfulRun, now: datetime) -> bool:
    """Record a run and request a baseline of it; whether it was new. At most one baseline per family and day is requested."""
    link = link_of(end.facts)
    at = datetime.fromtimestamp(min(max(end.at, 0.0), now.timestamp()), UTC)
    values = GoodEndRow(key=end.key, tenant=end.facts.tenant, link_job=link.job, link_name=link.name, at=at).model_dump(
        exclude={"id"}
    )
    if insert_new(session, GoodEndRow, values) is None:
        return False
    facts = end.facts
    family = family_of(Job(name=facts.name))
    if family is not None:
        order = KeepBaselinePayload(
            facts.id, facts.tenant, family, facts.cluster or None, facts.namespace, ended=at.timestamp()
        )
        enqueue_task(session, order.request(), now, FOLD)
    return True


def unsuitable_reason(report: Report) -> str | None:
    """Return why a run is unsuitable as a baseline; None if it is suitable."""
    if report.verdict == "fault":
        fault = report.diagnoses[0].fault if report.diagnoses else report.verdict
        return (
            f"it was stopped ({fault})"
            if report.phase == "stopped"
            else f"its logs show that it did not complete ({fault})"
        )
    state = (report.job.state or "").upper()
    if state.partition(" ")[0].rstrip("+") != DONE:
        if not state:
            return "no scheduler says that it completed (where none can be asked, put `state: COMPLETED` into its job.yaml)"
        return f"its scheduler reports {state.lower()}, not completed"
    if report.verdict != "no_fault" or report.phase != "completed":
        return f"it is not proven that it completed ({report.verdict})"
    if report.hang.suspected or report.hang.called:
        return "it may have hung"
    return None
