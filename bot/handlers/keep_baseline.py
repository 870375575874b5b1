"""Keeps runs that ended well, so that failed ones of the same family have something to be compared with.

Slow beside a diagnosis, for all lines are fetched and read; so it is work of its own, for one run of a family a day, of bounded
size. A run that its scheduler calls well and in which the rules see a failure is no good run.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from bot.collection.collect import spool_of
from bot.collection.find_job import JobNotFound
from bot.config.file import Config
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

MOST_BYTES = 2 << 30  # of a run's logs; a larger one is not read


@dataclass(frozen=True, slots=True)
class KeepBaselineHandler:
    """A worker's knowledge of how to keep one."""

    store: Database
    known: Knowledge
    config: Config

    def do(self, work: QueuedTask) -> TaskResult:
        """Do one order; the result says what came of it, in words."""
        order = msgspec.json.decode(work.payload, type=KeepBaselinePayload)
        spool, _ = spool_of(self.config.collect)
        spool.mkdir(parents=True, exist_ok=True, mode=0o700)
        # in a place of its own: whoever diagnoses this job meanwhile must not be given these files, nor lose any to them
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
                return TaskResult("not kept: its scheduler does not know it any more")
            label = f"{located.record.job.name or order.job}, job {located.record.job.id or order.job}"
            return TaskResult(keep_bundle(self.store, self.known, collected.folder, tenant=order.tenant, label=label))


def keep_bundle(
    store: Database, known: Knowledge, folder: Path, *, tenant: str, label: str, answer: DiagnosisResult | None = None
) -> str:
    """Keep the run of a bundle, where it is one that ended well; what came of it, in words. `answer`: its diagnosis.

    Raises:
        SignalboxError: the bundle cannot be read, or the store not be used.
    """
    size = sum(
        path.lstat().st_size for path in (folder / "logs").rglob("*") if path.is_file() and not path.is_symlink()
    )
    if size > MOST_BYTES:
        return f"not kept: its logs have {size >> 20} MiB, and at most {MOST_BYTES >> 20} are read"
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
    return f"kept as the good run of {family.split('|')[0]}: {len(good.counts)} events of {good.lines} lines"
