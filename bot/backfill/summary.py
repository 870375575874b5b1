"""The summary of a backfill: faults, messages per day, jobs without a diagnosis, jobs that could not be read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime

import msgspec

from bot.backfill.run import Backfilled, JobNote
from bot.config.chat import Tenant
from bot.policy.notifications import Flap, Subject, decide
from bot.policy.routing import Link, continues
from bot.render.text_format import cut, many, shown
from bot.runtime.redaction import redact

SCHEMA = "signalbox.backfill/1"
MOST = 20  # lines of a list
DAY = 86400.0
_SENTENCE = 160


@dataclass(frozen=True, slots=True)
class FaultLine:
    """A fault class: how often it was the top fault, and how often with weak confidence."""

    fault: str
    title: str
    count: int
    weak: int
    gpu_hours: float


@dataclass(frozen=True, slots=True)
class MessageCounts:
    """What the notification limits would have let through.

    `counted`: repeats shown in existing messages; `held`: above the limit.

    `by_day`: ISO date (UTC) → messages; `most`: on the busiest day.
    """

    posted: int = 0
    counted: int = 0
    held: int = 0
    a_day: float = 0.0
    most: int = 0
    by_day: Mapping[str, int] = field(default_factory=dict)
    channels: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UndiagnosedJob:
    """A failure without a diagnosis: the job, time, unusual line, and missing evidence."""

    job: str
    cluster: str
    ended: datetime
    summary: str
    stands_out: str
    gaps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BackfillSummary:
    """All figures. `listed`: jobs that the systems list; `fine`: completed ones; `looked`: diagnosed ones."""

    tenant: str
    start: datetime
    end: datetime
    listed: int
    fine: int
    looked: int
    failed: int
    well: int
    answered: int
    faults: tuple[FaultLine, ...]
    unanswered: tuple[UndiagnosedJob, ...]
    more_unanswered: int
    unread: Mapping[str, int]
    more_unread: int
    messages: MessageCounts
    median_seconds: float | None
    kept: int
    there: int
    left: int
    open: int
    troubles: tuple[str, ...]
    schema: str = SCHEMA


def summarise(found: Backfilled, title: Callable[[str], str], settings: Tenant | None = None) -> BackfillSummary:
    """Return the figures of a backfill.

    `title`: returns the title of a fault class; `settings`: the tenant's notification settings, else the defaults.
    """
    noted = found.noted
    failed = [job_note for job_note in noted if job_note.failed]
    silent = [job_note for job_note in failed if job_note.verdict != "fault"]
    unread = Counter(_quoted(job_note.error) for job_note in noted if job_note.error)
    taken = sorted(job_note.seconds for job_note in noted)
    return BackfillSummary(
        tenant=found.question.tenant,
        start=_utc(found.question.start),
        end=_utc(found.question.end),
        listed=found.past.seen,
        fine=found.past.fine,
        looked=len(noted),
        failed=len(failed),
        well=sum(not job_note.failed and not job_note.error for job_note in noted),
        answered=len(failed) - len(silent),
        faults=_faults([job_note for job_note in failed if job_note.verdict == "fault"], title),
        unanswered=tuple(_unanswered(job_note) for job_note in silent[:MOST]),
        more_unanswered=max(0, len(silent) - MOST),
        unread=dict(unread.most_common(MOST)),
        more_unread=sum(count for _, count in unread.most_common()[MOST:]),
        messages=messages(failed, found.question.end - found.question.start, settings or Tenant()),
        median_seconds=taken[len(taken) // 2] if taken else None,
        kept=sum(job_note.incident is not None and not job_note.known for job_note in noted),
        there=sum(job_note.known for job_note in noted),
        left=found.left,
        open=found.open,
        troubles=tuple(_quoted(trouble) for trouble in found.past.troubles),
    )


def _faults(noted: Sequence[JobNote], title: Callable[[str], str]) -> tuple[FaultLine, ...]:
    groups: dict[str, list[JobNote]] = {}
    for job_note in noted:
        groups.setdefault(job_note.fault or "unknown", []).append(job_note)
    lines = [
        FaultLine(
            fault,
            title(fault),
            len(group),
            sum(item.band == "weak" for item in group),
            sum(item.gpu_hours or 0.0 for item in group),
        )
        for fault, group in groups.items()
    ]
    return tuple(sorted(lines, key=lambda line: (-line.count, line.fault)))


def _unanswered(job_note: JobNote) -> UndiagnosedJob:
    return UndiagnosedJob(
        _quoted(
            f"{job_note.name} ({job_note.job})" if job_note.name and job_note.name != job_note.job else job_note.job
        ),
        job_note.cluster,
        _utc(job_note.ended),
        _quoted(job_note.summary),
        _quoted(job_note.stands_out),
        tuple(_quoted(gap) for gap in job_note.gaps),
    )


# --- message counts --------------------------------------------------------------------------------------------------


def messages(failed: Sequence[JobNote], span: float, settings: Tenant) -> MessageCounts:
    """Replay the notification limits over the failures in time order, without mutes and after the rollout."""
    flaps: dict[tuple[str, str, str], Flap] = {}
    posted: dict[str, list[float]] = {}
    chains = _chains(failed)
    did: Counter[str] = Counter()
    by_day: Counter[str] = Counter()
    for job_note in sorted(failed, key=lambda each: (each.ended, each.key)):
        subject = Subject(
            "", job_note.fingerprint, chains[job_note.key], job_note.job, job_note.name, job_note.rule, job_note.nodes
        )
        for channel in job_note.channels:
            place = (channel, subject.chain, job_note.fingerprint)
            decision = decide(
                subject,
                channel,
                job_note.ended,
                before=flaps.get(place),
                posted=posted.get(channel, ()),
                cap=settings.cap,
                flapping=settings.flapping,
            )
            flaps[place] = decision.flap
            did[decision.do] += 1
            if decision.do == "post":
                posted.setdefault(channel, []).append(job_note.ended)
                by_day[f"{_utc(job_note.ended):%Y-%m-%d}"] += 1
    days = max(1.0, span / DAY)
    return MessageCounts(
        did["post"],
        did["count"],
        did["hold"],
        round(did["post"] / days, 2),
        max(by_day.values(), default=0),
        dict(sorted(by_day.items())),
        {channel: len(times) for channel, times in sorted(posted.items())},
    )


def _chains(failed: Sequence[JobNote]) -> dict[str, str]:
    """Return the chain of each failure, as it would have been known at the time."""
    found: dict[str, str] = {}
    before: list[tuple[Link, float, str]] = []
    for job_note in sorted(failed, key=lambda each: (each.ended, each.key)):
        link = Link(job_note.link_job or job_note.key, job_note.link_name)
        chain = next(
            (chain for other, at, chain in reversed(before[-500:]) if continues(link, job_note.ended, other, at)),
            link.job,
        )
        found[job_note.key] = chain
        before.append((link, job_note.ended, chain))
    return found


# --- output ----------------------------------------------------------------------------------------------------------


def dumps(found: BackfillSummary) -> bytes:
    """Return the figures as JSON, with ISO times in UTC."""
    return msgspec.json.encode(asdict(found))


def text(found: BackfillSummary) -> str:
    """Return the figures as text for a terminal."""
    shown_messages = found.messages
    head = [
        (
            f"Past jobs from {found.start:%Y-%m-%d %H:%M}Z to {found.end:%Y-%m-%d %H:%M}Z: {found.listed} listed, "
            f"{found.fine} completed, {found.looked} diagnosed"
        ),
        (
            f"Failed: {found.failed}; with a diagnosis: {found.answered}{_share(found.answered, found.failed)}; "
            f"no failure found: {found.well}; not diagnosed: {sum(found.unread.values()) + found.more_unread}"
        ),
        (
            f"Would have posted: {many(shown_messages.posted, 'message')}, {shown_messages.a_day:g} a day, {shown_messages.most} on the busiest day; "
            f"{shown_messages.counted} repeats counted in existing messages, {shown_messages.held} held back by the limit"
        ),
    ]
    if len(shown_messages.channels) > 1:
        head.append(
            "Channels: " + ", ".join(f"{channel} {count}" for channel, count in shown_messages.channels.items())
        )
    faults = [
        f"  {fault.count:>5}  {fault.fault:<28} {fault.title}{f' ({fault.weak} of them weak)' if fault.weak else ''}"
        for fault in found.faults
    ]
    return "\n".join(
        [
            *head,
            *_section("By fault:", faults),
            *_section(
                "Without a diagnosis:",
                [line for undiagnosed_job in found.unanswered for line in _lines(undiagnosed_job)],
                found.more_unanswered,
            ),
            *_section(
                "Not diagnosed:",
                [f"  {count:>5}  {why}" for why, count in found.unread.items()],
                found.more_unread,
            ),
            *_section("Incomplete sources:", [f"  {trouble}" for trouble in found.troubles]),
            *_foot(found),
        ]
    )


def _foot(found: BackfillSummary) -> list[str]:
    lines = []
    if found.median_seconds is not None:
        lines.append(f"Median time for one job: {found.median_seconds:g} s")
    if found.kept or found.there:
        lines.append(f"Stored as backfilled incidents: {found.kept}; already stored: {found.there}")
    if found.left:
        lines.append(f"{found.left} older failures skipped (--limit)")
    if found.open:
        lines.append(f"{found.open} not diagnosed yet; continue with --resume")
    return ["", *lines] if lines else []


def _section(title: str, lines: Sequence[str], more: int = 0) -> list[str]:
    if not lines:
        return []
    return ["", title, *lines, *([f"  ... and {more} more"] if more else [])]


def _lines(undiagnosed_job: UndiagnosedJob) -> list[str]:
    head = f"  {undiagnosed_job.ended:%Y-%m-%d %H:%M}Z  {undiagnosed_job.job}: {undiagnosed_job.summary}"
    return [head, *([f"      unusual: {undiagnosed_job.stands_out}"] if undiagnosed_job.stands_out else [])]


def _share(part: int, whole: int) -> str:
    return f" ({part / whole:.0%})" if whole else ""


def _utc(at: float) -> datetime:
    return datetime.fromtimestamp(min(max(at, 0.0), 4e9), UTC)


def _quoted(text: str) -> str:
    return cut(shown(redact(text)), _SENTENCE)
