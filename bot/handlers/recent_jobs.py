"""`/diagnose` without a job: the person's recent failed jobs from the schedulers, newest first."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec
from sqlmodel import Session

from bot.collection.find_job import side_by_side
from bot.config.settings import Config
from bot.diagnosis.job import JobRequest, visible, wire
from bot.notify.choices import add_choices
from bot.notify.requests import add_reply, pending_requests
from bot.policy.job_end import classify_end
from bot.queue.payloads import DiagnosePayload, RecentJobsPayload
from bot.queue.tasks import QueuedTask
from bot.queue.worker import TaskResult
from connectors.base.contract import Deadline, Finder, JobSummary, SourceFailed
from kb.errors import SignalboxError
from kb.model import Window

FEW = 5
LOOK_BACK = 3 * 86400.0
PATIENCE = 15.0


def list_recent_jobs(config: Config, work: QueuedTask) -> TaskResult:
    """List the jobs and reply to the requester."""
    order = msgspec.json.decode(work.payload, type=RecentJobsPayload)
    found = recent_failures(config, order, time.time())

    def write_reply(session: Session) -> None:
        now = datetime.now(UTC)
        payloads = [
            msgspec.json.encode(
                {"order": DiagnosePayload(pair.id, order.tenant, cluster, pair.namespace, source="slack")}
            ).decode()
            for cluster, pair in found
        ]
        handles = add_choices(session, order.tenant, payloads, now)
        candidates = [
            {"handle": handle, "name": item.name or item.id, "facts": (item.state or "").lower()}
            for handle, (_, item) in zip(handles, found, strict=True)
        ]
        for request in pending_requests(session, work.id):
            add_reply(session, request, {"form": "recent", "candidates": candidates}, now)

    return TaskResult(f"{len(found)} jobs", write_reply)


def recent_failures(config: Config, order: RecentJobsPayload, now: float) -> list[tuple[str, JobSummary]]:
    """Return failed jobs as (cluster, job), newest first; only the person's own if their users are known."""
    deadline = Deadline.within(PATIENCE)
    try:
        clusters = visible(config, JobRequest("", order.tenant))
    except SignalboxError:
        return []
    asked = [(entry.name, finder) for entry in clusters for _, finder in wire(entry).finders()]
    window = Window(now - LOOK_BACK, now)

    def task(finder: Finder) -> Callable[[], tuple[JobSummary, ...]]:
        return lambda: finder.recent(window, deadline)

    answers = side_by_side([task(finder) for _, finder in asked], deadline)
    jobs: dict[tuple[str, str], JobSummary] = {}
    for (cluster, _), answer in zip(asked, answers, strict=True):
        if isinstance(answer, SourceFailed):
            continue
        for entry in answer:
            own = not order.users or entry.owner in order.users
            if own and classify_end(entry.state, None, None) == "bad":
                jobs.setdefault((cluster, entry.id), entry)
    newest = sorted(jobs.items(), key=lambda item: -(item[1].end or item[1].start or 0.0))
    return [(cluster, entry) for (cluster, _), entry in newest[:FEW]]
