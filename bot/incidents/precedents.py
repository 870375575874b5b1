"""Find precedents for a new job: earlier incidents, the fault library, exclusions, and outcomes of past advice.

All queries are bounded: the newest incidents of the same tenant and cluster, and the newest library entries.
Incidents that ended after the job are skipped, so that the answer is reproducible.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import msgspec
import zstandard
from sqlalchemy import select as columns
from sqlmodel import Session, col, select

from bot.diagnosis.diagnose import DiagnosisResult, Recall
from bot.incidents.exclusions import in_force_within, jobs_of
from bot.policy.routing import CHAIN, NAMELESS, JobFacts, Link, continues, link_of
from bot.runtime.paths import DEFAULT_TENANT
from bot.store.database import Database
from bot.store.digest_reading import rows_between
from bot.store.fault_library import known_within
from bot.store.tables import GoodEndRow, IncidentRow, KeptRow
from bot.store.visibility import Viewer
from kb.digest.rows import DigestRow, ends
from kb.facts.evidence import Evidence, logs_digest
from kb.facts.history import ExcludedNode
from kb.model import Job
from kb.precedents.advice_outcomes import AdviceStep
from kb.precedents.history import EarlierIncident, history_of
from kb.precedents.incident_trace import IncidentTrace, nodes_of, trace_of
from kb.precedents.report_section import Precedents
from kb.precedents.signature import FaultLibrary
from kb.rulebase.rule import FaultClass

TRACE = "trace"  # name of the attachment that an incident keeps for comparison with later ones
SPAN = timedelta(days=90)
NEAR = 30 * 86400.0  # seconds; older incidents only show how advice worked out
MOST = 1000  # incidents
MOST_ENDS = 2000  # successful runs
MOST_BYTES = 64 * 1024  # bytes of a trace, unpacked
SAME_END = 5.0  # seconds by which two reports about the same end may differ
_PERSON = frozenset("UW")


@dataclass(frozen=True, slots=True)
class PrecedentScope:
    """Which past incidents to search.

    `link`: identifies other attempts of the job, if it came from a scheduler. `viewer`: the only person who will see the
    answer; their own private incidents count too.
    """

    tenant: str = DEFAULT_TENANT
    cluster: str | None = None
    link: Link | None = None
    viewer: str | None = None


def whose(facts: JobFacts, viewer: str | None = None) -> PrecedentScope:
    """The scope for a job that was found. `viewer`: see `PrecedentScope`."""
    return PrecedentScope(facts.tenant, facts.cluster, link_of(facts), viewer)


def traced(answer: DiagnosisResult) -> dict[str, bytes]:
    """The trace of an answer, stored with its incident for later comparisons."""
    return {TRACE: msgspec.json.encode(trace_of(answer.report, answer.evidence))}


def moment(evidence: Evidence, now: datetime) -> datetime | None:
    """When a job ended: from its scheduler, or its last log line; None if unknown, and never in the future."""
    end = evidence.job.end
    if end is None:
        end = max((stream.last_time for stream in evidence.streams if stream.last_time is not None), default=None)
    with suppress(ValueError, OverflowError, OSError):
        return None if end is None else min(datetime.fromtimestamp(end, UTC), now)
    return None


def recaller(
    database: Callable[[], Database],
    who: PrecedentScope,
    faults: Mapping[str, FaultClass],
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Recall:
    """A function that finds precedents.

    It opens the database on the first call and keeps it open. Raises `StoreError`.
    """

    def recall(evidence: Evidence) -> Precedents:
        store, present = database(), now()
        with store.errors(), store.session() as session:
            return recall_within(session, evidence, who, faults, present)

    return recall


def recall_within(
    session: Session, evidence: Evidence, who: PrecedentScope, faults: Mapping[str, FaultClass], now: datetime
) -> Precedents:
    """All precedents for the job of this evidence."""
    at = moment(evidence, now) or now
    who = replace(who, cluster=who.cluster or evidence.job.cluster)
    rows, same = _rows(session, evidence.job, who, at, now)
    earlier, links = _earlier(session, rows, evidence.job, who, at.timestamp())
    again = _again(earlier, evidence)
    earlier = tuple(item for item in earlier if item.row.id not in again)
    same |= again
    near = tuple(earlier_incident for earlier_incident in earlier if at.timestamp() - earlier_incident.row.at <= NEAR)
    names = jobs_of((evidence.job.name, evidence.job.id))
    bars = in_force_within(session, who.tenant, who.cluster, nodes=nodes_of(evidence), jobs=names, now=now)
    barred = tuple(
        ExcludedNode(bar.node, bar.scope, f"{bar.since:%Y-%m-%d}", _by(bar.decided_by), bar.why) for bar in bars
    )
    return Precedents(
        at=at.timestamp(),
        earlier=near,
        history=history_of(near, at.timestamp(), barred),
        library=FaultLibrary(
            known_incident
            for known_incident in known_within(session, who.tenant, viewer=Viewer(who.viewer))
            if known_incident.incident not in same
        ),
        steps=_steps(earlier, links, _good_ends(session, who.tenant, at)),
        titles={name: item.title for name, item in faults.items()},
        domains={name: item.domain for name, item in faults.items()},
    )


def _rows(
    session: Session, job: Job, who: PrecedentScope, at: datetime, now: datetime
) -> tuple[list[DigestRow], frozenset[int]]:
    """Reports of earlier ends, one for each, oldest first; and the incidents of this end."""
    read = rows_between(
        session, who.tenant, at - SPAN, now, until=now, cluster=who.cluster, most=MOST, viewer=Viewer(who.viewer)
    )
    same = frozenset(digest_row.id for digest_row in read if _is_same(digest_row, job, at.timestamp()))
    return [end for end in ends([row for row in read if row.id not in same]) if end.at < at.timestamp()], same


def _is_same(row: DigestRow, job: Job, at: float) -> bool:
    """Whether a report is about the same end of the job."""
    if job.id is None or row.job is None:
        return job.id == row.job and abs(row.at - at) < 0.001
    if row.job != job.id:
        return False
    attempt = job.attempts[-1].number if job.attempts else job.attempt
    if attempt is not None and row.attempt is not None:
        return attempt == row.attempt
    return abs(row.at - at) <= SAME_END


def _again(earlier: Sequence[EarlierIncident], evidence: Evidence) -> frozenset[int]:
    """Reports on the same logs: where one of them knows no job id, or of a job whose attempts neither report numbers.

    Neither an id nor a time tells that it is the same end: a bundle's time of the end may be another than a connector's.
    """
    job = evidence.job
    numbered = bool(job.attempts) or job.attempt is not None
    mine = logs_digest(evidence)
    return frozenset(
        item.row.id
        for item in earlier
        if mine
        and item.trace.logs == mine
        and (
            None in (item.row.job, job.id)
            or (item.row.job == job.id and not (numbered and item.row.attempt is not None))
        )
    )


def _earlier(
    session: Session, rows: Sequence[DigestRow], job: Job, who: PrecedentScope, at: float
) -> tuple[tuple[EarlierIncident, ...], Mapping[int, Link]]:
    """The rows with their traces, and which of them are attempts of this job."""
    more = _more(session, [digest_row.id for digest_row in rows])
    found = [(row, more[row.id]) for row in rows if row.id in more and more[row.id].merged is None]
    own = {row.id for row, incident_details in found if _is_own(row, incident_details.link, job, who.link, at)}
    chains = {row.chain for row, _ in found if row.id in own and row.chain is not None}
    earlier = tuple(
        EarlierIncident(
            row,
            row.id in own or row.chain in chains,
            incident_details.reached,
            incident_details.advice or "none",
            incident_details.trace,
        )
        for row, incident_details in found
    )
    return earlier, {row.id: incident_details.link for row, incident_details in found}


def _is_own(row: DigestRow, link: Link, job: Job, mine: Link | None, at: float) -> bool:
    if mine is not None and link.job and continues(mine, at, link, row.at):
        return True
    if job.id is not None and row.job == job.id:
        return True
    named = bool(job.name) and (job.name or "").strip().lower() not in NAMELESS and row.name == job.name
    return named and row.owner == job.owner and abs(at - row.at) <= CHAIN


@dataclass(frozen=True, slots=True)
class _IncidentDetails:
    """Columns of an incident that the digest does not need."""

    link: Link
    reached: int | None
    advice: str | None
    merged: int | None
    trace: IncidentTrace


def _more(session: Session, numbers: Sequence[int]) -> Mapping[int, _IncidentDetails]:
    found: dict[int, _IncidentDetails] = {}
    for start in range(0, len(numbers), 500):
        query = (
            columns(
                col(IncidentRow.id),
                col(IncidentRow.link_job),
                col(IncidentRow.link_name),
                col(IncidentRow.reached),
                col(IncidentRow.advice),
                col(IncidentRow.merged_into),
                col(KeptRow.data_zstd),
            )
            .join(
                KeptRow,
                (col(KeptRow.incident_id) == col(IncidentRow.id)) & (col(KeptRow.name) == TRACE),
                isouter=True,
            )
            .where(col(IncidentRow.id).in_(numbers[start : start + 500]))
        )
        for number, job, name, reached, advice, merged, data in session.execute(query):
            found[number] = _IncidentDetails(Link(job or "", name), reached, advice, merged, _trace(data))
    return found


_TRACES = msgspec.json.Decoder(IncidentTrace)


def _trace(data: bytes | None) -> IncidentTrace:
    if data is not None:
        with suppress(zstandard.ZstdError, msgspec.MsgspecError):
            return _TRACES.decode(zstandard.ZstdDecompressor().decompress(data, max_output_size=MOST_BYTES))
    return IncidentTrace()


@dataclass(frozen=True, slots=True)
class _SuccessfulRuns:
    """Times of successful runs, by the link between attempts."""

    by_job: Mapping[str, Sequence[float]]
    by_name: Mapping[str, Sequence[float]]

    def between(self, link: Link, after: float, before: float) -> bool:
        """Whether the job succeeded in this time range."""
        by_job = self.by_job.get(link.job, ())
        by_name = [at for at in self.by_name.get(link.name or "", ()) if at - after <= CHAIN]
        return any(after < at < before for at in (*by_job, *by_name))


def _good_ends(session: Session, tenant: str, at: datetime) -> _SuccessfulRuns:
    query = (
        select(GoodEndRow)
        .where(col(GoodEndRow.tenant) == tenant, col(GoodEndRow.at) >= at - SPAN, col(GoodEndRow.at) <= at)
        .order_by(col(GoodEndRow.at).desc())
        .limit(MOST_ENDS)
    )
    by_job: dict[str, list[float]] = {}
    by_name: dict[str, list[float]] = {}
    for row in session.exec(query):
        by_job.setdefault(row.link_job, []).append(row.at.timestamp())
        if row.link_name:
            by_name.setdefault(row.link_name, []).append(row.at.timestamp())
    return _SuccessfulRuns(by_job, by_name)


def _steps(
    earlier: Sequence[EarlierIncident], links: Mapping[int, Link], good: _SuccessfulRuns
) -> tuple[AdviceStep, ...]:
    """Each failure of a job that was tried again, with the next outcome."""
    chains: dict[str, list[EarlierIncident]] = {}
    for earlier_incident in earlier:
        if earlier_incident.failed and earlier_incident.row.chain is not None:
            chains.setdefault(earlier_incident.row.chain, []).append(earlier_incident)
    return tuple(step for tries in chains.values() for step in _of_chain(tries, links, good))


def _of_chain(
    tries: Sequence[EarlierIncident], links: Mapping[int, Link], good: _SuccessfulRuns
) -> Iterator[AdviceStep]:
    for item, after in zip(tries, (*tries[1:], None), strict=True):
        over = good.between(links[item.row.id], item.row.at, after.row.at if after is not None else math.inf)
        step = AdviceStep(
            item.row.known, item.advice, item.reached, item.trace.ran_on, tried=over or after is not None, over=over
        )
        if after is not None and not over:
            step = replace(
                step,
                next_fault=after.row.known,
                next_reached=after.reached,
                next_ran_on=after.trace.ran_on,
            )
        yield step


def _by(who: str | None) -> str:
    """Who confirmed, as shown in a report. Slack ids are not names."""
    if not who:
        return "somebody"
    return "somebody in Slack" if who[0] in _PERSON and who.isalnum() and who.isupper() else who
