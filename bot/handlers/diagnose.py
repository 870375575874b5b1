"""How a worker handles a diagnosis: find the job, collect, diagnose, store, notify.

It can be killed at any point. Collected data is recorded with the task, a report has the same id whoever makes it, and one
transaction completes the task and writes the messages about it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
from sqlmodel import Session

from bot.collection.collect import CollectedBundle, finished
from bot.collection.find_job import JobNotFound, LocatedJob
from bot.config.chat import Tenant
from bot.config.settings import Config
from bot.diagnosis.command_paths import runnable
from bot.diagnosis.diagnose import ComparisonOptions, diagnose_bundle
from bot.diagnosis.job import JobRequest, gather, visible
from bot.handlers.successful_runs import SuccessfulRun, record_successful_run, unsuitable_reason
from bot.incidents.exclusions import propose_within
from bot.incidents.ledger import Ledger
from bot.incidents.precedents import recaller, traced, whose
from bot.learning.replay.shadow import ShadowHit, count_within, shadowed
from bot.notify.announce import announce, assign_chain, end_time
from bot.notify.choices import add_choices
from bot.notify.messages import add_reminder
from bot.notify.outbox import enqueue_files
from bot.notify.requests import NOBODY, add_answer_message, add_reply, answer_requests, pending_requests
from bot.pages.attachments import small
from bot.policy.routing import JobFacts, facts_of, link_of
from bot.queue.payloads import DiagnosePayload
from bot.queue.tasks import QueuedTask
from bot.queue.worker import TaskResult
from bot.render.report_json import dumps
from bot.retention.evidence import spared
from bot.rulebase.loader import Knowledge
from bot.runtime import metrics
from bot.store.baselines import finder
from bot.store.packed_reports import Origin, PackedReport, file
from bot.store.report_writes import add_within
from bot.store.tables import IncidentRow
from connectors.base.contract import JobSummary
from kb.facts.evidence import logs_digest
from kb.facts.given_job import GivenJob
from kb.hangs.checkpoint_saves import time_saving
from kb.learning.precision import HitRate, calibrated
from kb.model import NOT_FAILED
from kb.report import Report

SATURDAY = 5
BETWEEN = 1.0  # seconds between two progress updates


class SpooledBundle(msgspec.Struct, frozen=True):
    """Collected data, recorded with the task so that a retry need not collect again."""

    folder: str
    facts: JobFacts
    end: float | None
    sources: dict[str, str]


def _count_metrics(report: Report, timing: Mapping[str, float]) -> None:
    """Update the metrics of the service."""
    metrics.count("diagnoses", report.verdict)
    if report.diagnoses and report.diagnoses[0].known:
        metrics.count("rule_hits", report.diagnoses[0].rule)
    for step, seconds in timing.items():
        metrics.timed("diagnosis_seconds", seconds, step.removesuffix("_s"))


@dataclass(frozen=True, slots=True)
class _Made:
    """An answer ready to store and post, and the hits of rules in shadow mode."""

    report: Report
    filed: PackedReport
    hits: tuple[ShadowHit, ...]


@dataclass(frozen=True, slots=True)
class DiagnoseHandler:
    """Diagnoses jobs for a worker."""

    ledger: Ledger
    known: Knowledge
    config: Config

    def do(self, work: QueuedTask) -> TaskResult:
        """Handle one task. The result is the incident number, or "unknown".

        The incident is stored in the transaction that completes the task, so a worker that dies leaves no incident without
        messages.
        """
        order = msgspec.json.decode(work.payload, type=DiagnosePayload)
        spooled = self._spooled(work)
        if spooled is None:
            try:
                spooled = self._collected(work, order)
            except JobNotFound as unknown:
                candidates, gaps = unknown.candidates, [[gap.source, gap.reason] for gap in unknown.gaps]
                return TaskResult("unknown", lambda session: _offer_candidates(session, work, order, candidates, gaps))
        folder = Path(spooled.folder)
        compare = ComparisonOptions(find=finder(lambda: self.ledger.database, order.tenant), workers=1)
        scope = whose(spooled.facts, order.private_to)
        recall = recaller(lambda: self.ledger.database, scope, self.known.rulebook.faults)
        given = None if order.state is None else GivenJob(order.state)
        answer = diagnose_bundle(self.known, folder, workers=1, compare=compare, recall=recall, given=given)
        report = self._calibrated(runnable(answer, anywhere=True), order.tenant)
        answer = replace(answer, report=report)
        hits = shadowed(self.known, answer.evidence)
        end = end_time(report, spooled.end)
        _count_metrics(report, answer.timing)
        kept = {**small(answer), **traced(answer)}
        job, facts = answer.evidence.job, spooled.facts
        origin = Origin(
            order.tenant,
            facts.cluster,
            end,
            kept,
            facts.partition,
            job.framework,
            job.image,
            time_saving(answer.evidence),
            private_to=order.private_to,
            logs=logs_digest(answer.evidence),
        )
        filed = file(dumps(report), report, answer.replay, str(folder), datetime.now(UTC), origin=origin)
        made = _Made(report, filed, hits)
        return TaskResult("", lambda session: self._record_answer(session, work, order, spooled=spooled, answer=made))

    def _calibrated(self, report: Report, tenant: str) -> Report:
        """Return the report with confidence calibrated by the rules' record here, if configured."""
        if not self.config.learning.calibrate:
            return report
        seen = {standing.rule: HitRate(standing.right, standing.n) for standing in self.ledger.mutes.standings(tenant)}
        return calibrated(report, seen)

    def _spooled(self, work: QueuedTask) -> SpooledBundle | None:
        """Return what a dead worker had collected, if it still exists and is reachable from here."""
        if work.spooled is None:
            return None
        found = msgspec.json.decode(work.spooled, type=SpooledBundle)
        return found if finished(Path(found.folder)) is not None else None

    def _collected(self, work: QueuedTask, order: DiagnosePayload) -> SpooledBundle:
        request = JobRequest(
            order.job, order.tenant, order.cluster, order.namespace, last=order.last, deep=order.deep, ended=order.ended,
            lost=Path(msgspec.json.decode(work.spooled, type=SpooledBundle).folder) if work.spooled is not None else None,
        )  # fmt: skip
        progress = _Progress(self.ledger, work, order.job)

        def meet(located: LocatedJob) -> None:
            sources = [connector.name for cluster in visible(self.config, request) if cluster.name == located.cluster
                       for connector in cluster.connectors]  # fmt: skip
            progress.met(located, sources)

        located, collected = gather(
            self.known,
            self.config,
            request,
            tell=progress.tell,
            meet=meet,
            spare=lambda: spared(self.ledger.database, datetime.now(UTC), self.config.retention),
        )
        progress.over(collected)
        facts = facts_of(order.tenant, located.cluster, located.record)
        spooled = SpooledBundle(str(collected.folder), facts, located.record.job.end, collected.sources)
        self.ledger.tasks.spool(work.id, work.worker or "", msgspec.json.encode(spooled).decode())
        return spooled

    def _record_answer(
        self, session: Session, work: QueuedTask, order: DiagnosePayload, *, spooled: SpooledBundle, answer: _Made
    ) -> str:
        """Store the incident and notify everybody, in the transaction that completes the task; return the incident number."""
        now, report = datetime.now(UTC), answer.report
        incident = add_within(session, answer.filed)
        row = session.get_one(IncidentRow, incident)
        nobody = any(pending_request.who == NOBODY for pending_request in pending_requests(session, work.id))
        assign_chain(session, row, link_of(spooled.facts), row.ended_at or now)
        if order.private_to is None:  # a private answer leaves nothing that others see
            count_within(session, incident, order.tenant, answer.hits)
            propose_within(session, report, tenant=order.tenant, cluster=row.cluster, incident=incident, now=now)
            if unsuitable_reason(report) is None:
                record_successful_run(session, SuccessfulRun(spooled.facts, (row.ended_at or now).timestamp()), now)
        facts = {"sources": spooled.sources, "why": "" if order.source == "slack" else order.why}
        made = answer_requests(session, work.id, incident, facts, now)
        wanted = self.config.tenants_of_chat.get(order.tenant)
        if nobody:
            for request in pending_requests(session, work.id):
                request.settled = True
                session.add(request)
        if nobody and wanted is not None:
            made += announce(session, wanted, row, report=report, job=spooled.facts, why=order.why, now=now)
        tenant = wanted or Tenant()
        for posting in made:
            if tenant.remind and report.verdict not in NOT_FAILED:
                add_reminder(session, posting, next_working_day(now, tenant.zone), now)
            enqueue_files(session, posting, incident, now)
        return str(incident)


class _Progress:
    """Shows the collection progress in messages, once a second."""

    def __init__(self, ledger: Ledger, work: QueuedTask, job: str) -> None:
        self._ledger = ledger
        self._work = work
        self._job = job
        self._sources: dict[str, list[str]] = {}
        self._last = 0.0

    def met(self, located: LocatedJob, sources: list[str]) -> None:
        """The job was found: everybody who waits gets a message."""
        job = located.record.job
        self._job = job.name or job.id or self._job
        self._sources = {name: ["waiting", ""] for name in sources}
        now = datetime.now(UTC)
        with self._ledger.database.errors(), self._ledger.database.session(write=True) as session:
            for request in pending_requests(session, self._work.id):
                if request.who != NOBODY:
                    add_answer_message(session, request, now, self._facts())

    def tell(self, name: str, words: str) -> None:
        """Record what a source said: that it was queried, or what it returned."""
        if words == "asked":
            self._sources.setdefault(name, ["waiting", ""])
            return
        self._sources[name] = [_state(words), words[:300]]
        if time.monotonic() - self._last >= BETWEEN:
            self._last = time.monotonic()
            self._ledger.messages.show_progress(self._work.id, self._facts())

    def over(self, collected: CollectedBundle) -> None:
        """Record that collection is complete."""
        for name, words in collected.sources.items():
            self._sources[name] = [_state(words), words[:300]]
        self._ledger.messages.show_progress(self._work.id, self._facts())

    def _facts(self) -> dict[str, Any]:
        return {
            "job": self._job,
            "tries": self._work.tries,
            "sources": [[name, *told] for name, told in self._sources.items()][:50],
        }


def next_working_day(now: datetime, zone: str) -> datetime:
    """Return ten o'clock of the next day from Monday to Friday."""
    local = now.astimezone(ZoneInfo(zone))
    day = local + timedelta(days=1)
    while day.weekday() >= SATURDAY:
        day += timedelta(days=1)
    return day.replace(hour=10, minute=0, second=0, microsecond=0)


def _offer_candidates(
    session: Session,
    work: QueuedTask,
    order: DiagnosePayload,
    candidates: tuple[tuple[str, JobSummary], ...],
    gaps: list[list[str]],
) -> None:
    """Offer the requester the jobs that could be meant, each with a button."""
    now = datetime.now(UTC)
    for request in pending_requests(session, work.id):
        if request.who == NOBODY:
            request.settled = True
            session.add(request)
            continue
        orders = [
            DiagnosePayload(
                pair.id,
                order.tenant,
                cluster,
                order.namespace,
                order.why,
                "slack",
                order.last,
                order.deep,
                private_to=order.private_to,
                state=order.state,
            )
            for cluster, pair in candidates
        ]
        payloads = [
            msgspec.json.encode(
                {"order": diagnose_payload, "private": request.private, "thread_ts": request.thread_ts}
            ).decode()
            for diagnose_payload in orders
        ]
        handles = add_choices(session, order.tenant, payloads, now)
        offered = [
            {"handle": handle, "name": item.name or item.id, "facts": _job_facts(item)}
            for handle, (_, item) in zip(handles, candidates, strict=True)
        ]
        add_reply(session, request, {"form": "unknown", "job": order.job, "candidates": offered, "gaps": gaps}, now)


def _job_facts(job_summary: JobSummary) -> str:
    parts = [
        job_summary.id if job_summary.name else "",
        (job_summary.state or "").lower(),
        f"of {job_summary.owner}" if job_summary.owner else "",
    ]
    return ", ".join(part for part in parts if part)


def _state(words: str) -> str:
    """Return whether a source returned something, had nothing to return, or failed, by what it said (bot.collection.collect)."""
    return "empty" if words == "nothing" else "failed" if words.startswith("nothing") else "came"
