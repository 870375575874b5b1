"""Keeps successful runs as baselines for failed runs of the same family.

This is slow compared to a diagnosis, because all lines are fetched and read. So it is a task of its own: one run per family and
day, of limited size. A run that the scheduler calls successful but in which rules find a failure is not kept.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from bot.collection.collect import spool_of
from bot.collection.find_job import JobNotFound
from bot.config.settings import Config
from bot.diagnosis.comparison import read_baseline
from bot.diagnosis.diagnose import DiagnosisResult, diagnose_bundle
from bot.diagnosis.job import JobRequest, gather
from bot.handlers.successful_runs import unsuitable_reason
from bot.queue.payloads import KeepBaselinePayload
from bot.queue.tasks import QueuedTask
from bot.queue.worker import TaskResult
from bot.rulebase.loader import Knowledge
from bot.store.baselines import family_of, keep
from bot.store.database import Database

MOST_BYTES = 2 << 30  # bytes of logs; larger runs are skipped


@dataclass(frozen=True, slots=True)
class KeepBaselineHandler:
    """Keeps baselines for a worker."""

    store: Database
    known: Knowledge
    config: Config

    def do(self, work: QueuedTask) -> TaskResult:
        """Handle one task; the result says what happened."""
        order = msgspec.json.decode(work.payload, type=KeepBaselinePayload)
        spool, _ = spool_of(self.config.collect)
        spool.mkdir(parents=True, exist_ok=True, mode=0o700)
        # in a folder of its own: a concurrent diagnosis of this job must neither see nor lose these files
        with tempfile.TemporaryDirectory(prefix="good-run-", dir=spool) as place:
            request = JobRequest(
                order.job,
                order.tenant,
                order.cluster,
                order.namespace,
                deep=True,
                ended=order.ended,
                save=Path(place) / "bundle",
            )
            try:
                located, collected = gather(self.known, self.config, request)
            except JobNotFound:
                return TaskResult("not kept: its scheduler no longer knows the job")
            label = f"{located.record.job.name or order.job}, job {located.record.job.id or order.job}"
            return TaskResult(keep_bundle(self.store, self.known, collected.folder, tenant=order.tenant, label=label))


def keep_bundle(
    store: Database, known: Knowledge, folder: Path, *, tenant: str, label: str, answer: DiagnosisResult | None = None
) -> str:
    """Keep the run of a bundle if it was successful; return what happened. `answer`: its diagnosis.

    Raises:
        SignalboxError: the bundle cannot be read, or the store is unavailable.
    """
    size = sum(
        path.lstat().st_size for path in (folder / "logs").rglob("*") if path.is_file() and not path.is_symlink()
    )
    if size > MOST_BYTES:
        return f"not kept: its logs are {size >> 20} MiB, more than the limit of {MOST_BYTES >> 20} MiB"
    answer = answer or diagnose_bundle(known, folder, workers=1)
    reason = unsuitable_reason(answer.report)
    if reason is not None:
        return f"not kept: {reason}"
    family = family_of(answer.evidence.job)
    if family is None:
        return "not kept: the job has no name"
    good, gaps = read_baseline([folder], workers=1)
    if good is None:
        return f"not kept: {gaps[-1].reason if gaps else 'it has no logs'}"
    keep(store, family, replace(good, label=label), datetime.now(UTC), tenant=tenant)
    return f"kept as the baseline of {family.split('|')[0]}: {len(good.counts)} events of {good.lines} lines"
