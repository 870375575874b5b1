"""Diagnoses past jobs as if they had just ended, to show what would have been posted, how often, and how many messages per day.

Nothing is posted, and nothing is stored as an incident unless requested. Each diagnosis is noted in a file immediately, so that a
killed backfill can resume.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import msgspec
from sqlmodel import col, select

from bot.backfill.past_jobs import PastJob, PastJobs, past_jobs
from bot.config.settings import Config
from bot.diagnosis.diagnose import diagnose_bundle
from bot.diagnosis.job import JobRequest, gather
from bot.incidents.ledger import Ledger
from bot.notify.announce import assign_chain
from bot.notify.announce import end_time as end_of
from bot.pages.attachments import small
from bot.policy.notifications import subject_of
from bot.policy.routing import Destination, destinations, facts_of, link_of
from bot.render.report_json import dumps
from bot.rulebase.loader import Knowledge
from bot.store.packed_reports import Origin, file
from bot.store.report_writes import add_within
from bot.store.tables import IncidentRow
from bot.store.visibility import visible
from kb.errors import SignalboxError, UnreadableInput
from kb.hangs.checkpoint_saves import time_saving
from kb.model import NOT_FAILED
from kb.report import Report

SCHEMA = "signalbox.backfill-notes/1"
CHANNEL = "the channel"  # if no channel is configured
LONGEST_NOTES = 256 << 20  # bytes
SAME_END = 300.0  # seconds by which two systems may disagree about the same end
_REASON = 300


class JobNote(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The outcome of one job. `error`: it could not be diagnosed; the other fields come from its report.

    `channels`: where an answer would have gone; `link_job`, `link_name`: see bot.policy.routing.Link; `incident`: its number if
    it is stored, `known`: it already existed.
    """

    key: str
    cluster: str
    job: str
    name: str
    ended: float
    how: str
    seconds: float
    error: str = ""
    verdict: str = ""
    phase: str = ""
    fault: str | None = None
    rule: str | None = None
    band: str | None = None
    summary: str = ""
    fingerprint: str = ""
    nodes: tuple[str, ...] = ()
    gpus: int | None = None
    gpu_hours: float | None = None
    stands_out: str = ""
    gaps: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    link_job: str = ""
    link_name: str | None = None
    incident: int | None = None
    known: bool = False

    @property
    def failed(self) -> bool:
        """Whether the report shows a failure."""
        return not self.error and self.verdict not in NOT_FAILED and self.phase not in ("stopped", "completed")


class Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to backfill: which tenant, period (seconds since the epoch), names, and how many at most."""

    tenant: str
    start: float
    end: float
    pattern: str
    limit: int
    schema: str = SCHEMA


Tell = Callable[[int, int, JobNote], None]  # done, total, and the last job


@dataclass(frozen=True, slots=True)
class Backfilled:
    """All findings. `left`: ends beyond the limit; `open`: ends not diagnosed because the run was stopped."""

    question: Question
    past: PastJobs
    noted: tuple[JobNote, ...]
    left: int
    open: int


@dataclass(frozen=True, slots=True)
class Backfill:
    """Diagnoses past jobs. `notes`: the file of results so far; `keep`: store reports as backfilled incidents."""

    known: Knowledge
    config: Config
    notes: Path
    keep: Ledger | None = None
    workers: int | None = None

    def run(
        self, question: Question, tell: Tell, *, resume: bool = False, stop: Callable[[], bool] = lambda: False
    ) -> Backfilled:
        """Diagnose all jobs, newest first, except those noted before.

        Raises:
            SignalboxError: no cluster is configured, or the notes cannot be written.
        """
        clusters = self.config.of_tenant(question.tenant)
        if not any(cluster.connectors for cluster in clusters):
            raise SignalboxError("no configured connector lists jobs; see `signalbox config example`")
        if resume and (before := _question(self.notes)) is not None:
            question = msgspec.structs.replace(before, limit=question.limit)
        timeouts = self.config.serve.endings.timeouts
        past = past_jobs(clusters, question.start, question.end, pattern=question.pattern, timeouts=timeouts)
        wanted = past.jobs[: question.limit]
        book = _Notes(self.notes, question, resume=resume)
        noted = {item.key: item for item in book.read}
        with book:
            for item in wanted:
                if stop():
                    break
                if item.key in noted:
                    continue
                noted[item.key] = found = self._looked(question, item)
                book.add(found)
                tell(len(noted), len(wanted), found)
        done = tuple(noted[item.key] for item in wanted if item.key in noted)
        return Backfilled(question, past, done, len(past.jobs) - len(wanted), len(wanted) - len(done))

    def _looked(self, question: Question, job: PastJob) -> JobNote:
        """Collect one job into a temporary folder and diagnose it."""
        begun = time.monotonic()
        try:
            with TemporaryDirectory(prefix="signalbox-backfill-") as folder:
                found = self._answered(question, job, Path(folder) / "bundle")
        except SignalboxError as error:
            found = _note(job, error=str(error)[:_REASON])
        except Exception as error:  # noqa: BLE001 - top-level handler: one job must not stop the others
            found = _note(job, error=f"internal error: {type(error).__name__}: {error}"[:_REASON])
        return msgspec.structs.replace(found, seconds=round(time.monotonic() - begun, 2))

    def _answered(self, question: Question, job: PastJob, folder: Path) -> JobNote:
        request = JobRequest(
            job.job,
            question.tenant,
            job.cluster,
            job.namespace,
            save=folder,
            ended=job.ended if job.told else None,
            look_back=time.time() - question.start + 86400.0,
        )
        located, collected = gather(self.known, self.config, request)
        answer = diagnose_bundle(self.known, collected.folder, workers=self.workers)
        report, facts = answer.report, facts_of(question.tenant, located.cluster, located.record)
        link = link_of(facts)
        first = report.diagnoses[0] if report.diagnoses else None
        subject = subject_of(report, question.tenant, "", facts.id, facts.name)
        found = _note(
            job,
            name=facts.name or job.name,
            verdict=report.verdict,
            phase=report.phase,
            fault=first.fault if first else None,
            rule=(first.rule or None) if first else None,
            band=first.band if first else None,
            summary=report.summary[:_REASON],
            fingerprint=report.fingerprint,
            nodes=subject.nodes[:64],
            gpus=report.job.gpus,
            gpu_hours=report.decision.gpu_hours_lost,
            stands_out=_unusual_line(report),
            gaps=tuple(f"{gap.source}: {gap.reason}"[:_REASON] for gap in report.gaps[:5]),
            channels=tuple(place.to for place in self._places(report, question.tenant, facts)),
            link_job=link.job,
            link_name=link.name,
        )
        if self.keep is None:
            return found
        at = datetime.fromtimestamp(job.ended, UTC)
        origin = Origin(
            question.tenant, located.cluster, end_of(report, located.record.job.end) or at, small(answer), facts.partition,
            answer.evidence.job.framework, answer.evidence.job.image, time_saving(answer.evidence), backfilled=True,
        )  # fmt: skip
        filed = file(dumps(report), report, answer.replay, None, at, origin=origin)

        def kept(session: Any) -> tuple[int, bool]:
            there = _existing_incident(session, question.tenant, job)
            if there is not None:
                return there, True
            number = add_within(session, filed)
            row = session.get_one(IncidentRow, number)
            if row.backfilled:
                assign_chain(session, row, link, row.ended_at or at)
            return number, not row.backfilled

        number, before = self.keep.database.write(kept)
        return msgspec.structs.replace(found, incident=number, known=before)

    def _places(self, report: Report, tenant: str, facts: Any) -> Sequence[Destination]:
        """Return where an answer would have gone after the rollout; one channel if none is configured."""
        wanted = self.config.tenants_of_chat.get(tenant)
        if wanted is None:
            return destinations(report, facts, (), announce=CHANNEL)
        anywhere = wanted.announce or (None if wanted.subscriptions else CHANNEL)
        return destinations(report, facts, wanted.subscriptions, wanted.people, announce=anywhere)


def _note(job: PastJob, **more: Any) -> JobNote:
    told = {"name": job.name, **more}
    return JobNote(key=job.key, cluster=job.cluster, job=job.job, ended=job.ended, how=job.how, seconds=0.0, **told)


def _unusual_line(report: Report) -> str:
    """Return the most unusual line if there is no diagnosis."""
    return report.indicators.events[0].what[:_REASON] if report.indicators.events else ""


def _existing_incident(session: Any, tenant: str, job: PastJob) -> int | None:
    """Return an existing incident of this end, from a live diagnosis or an earlier backfill."""
    rows = session.exec(
        select(IncidentRow.id, IncidentRow.ended_at, IncidentRow.created_at)
        .where(col(IncidentRow.tenant) == tenant, col(IncidentRow.job_id) == job.job, visible())
        .order_by(col(IncidentRow.id).desc())
        .limit(200)
    )
    near = (number for number, ended, made in rows if abs((ended or made).timestamp() - job.ended) <= SAME_END)
    return next(near, None)


# --- notes -----------------------------------------------------------------------------------------------------------


def notes_of(folder: Path, tenant: str, pattern: str) -> Path:
    """Return the notes file of a tenant's backfill."""
    digest = sha256(repr((tenant, pattern)).encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return folder / "backfill" / f"{digest}.jsonl"


class _Notes:
    """The notes file, appended line by line. A line cut by a kill is removed."""

    def __init__(self, path: Path, question: Question, *, resume: bool) -> None:
        self._path = path
        self._question = question
        self.read = _read_notes(path) if resume and _question(path) is not None else ()
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            fresh = path.with_suffix(".new")
            with fresh.open("wb") as new:
                for line in (question, *self.read):
                    new.write(msgspec.json.encode(line) + b"\n")
            fresh.chmod(0o600)
            shutil.move(fresh, path)
            self._file = path.open("ab")
        except OSError as error:
            raise SignalboxError(f"{path}: cannot write the backfill notes: {error.strerror or error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, job_note: JobNote) -> None:
        """Append a note so that it survives a kill.

        Raises:
            SignalboxError: the file cannot be written.
        """
        try:
            self._file.write(msgspec.json.encode(job_note) + b"\n")
            self._file.flush()
        except OSError as error:
            raise SignalboxError(f"{self._path}: cannot write the backfill notes: {error.strerror or error}") from error


def _lines(path: Path) -> list[bytes]:
    try:
        if path.stat().st_size > LONGEST_NOTES:
            raise UnreadableInput(
                f"{path}: the notes are larger than {LONGEST_NOTES:,} bytes; start over without --resume"
            )
        return path.read_bytes().split(b"\n")[:-1]  # a kill cut off the text after the last line break
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UnreadableInput(f"{path}: {error.strerror or error}") from error


def _question(path: Path) -> Question | None:
    """Return what the notes are about; None if there are no readable notes."""
    lines = _lines(path)
    try:
        found = msgspec.json.decode(lines[0], type=Question) if lines else None
    except msgspec.MsgspecError:
        return None
    return found if found is not None and found.schema == SCHEMA else None


def _read_notes(path: Path) -> tuple[JobNote, ...]:
    found = []
    for line in _lines(path)[1:]:
        try:
            found.append(msgspec.json.decode(line, type=JobNote))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue  # the job is diagnosed again
    return tuple(found)


def unfinished(path: Path) -> bool:
    """Whether a new backfill would overwrite unfinished notes."""
    return bool(_read_notes(path))
