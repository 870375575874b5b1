"""Shift handover: open incidents, excluded nodes, watched jobs, pending decisions, and recent changes.

It takes a few bounded queries and opens no report. Lists are bounded and say how many entries are omitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

import msgspec
from sqlalchemy import ColumnElement, func
from sqlmodel import Session, col, or_, select

from bot.incidents.exclusions import shared
from bot.incidents.lifecycle import step_text, steps_since
from bot.queue.payloads import DIAGNOSE
from bot.render.text_format import cut, many, shown
from bot.runtime.redaction import redact
from bot.store.database import Database
from bot.store.incident_state import in_state, state_of, to_do
from bot.store.run_names import run_name
from bot.store.states import PostingState, WorkState
from bot.store.tables import AnnotationRow, BarRow, IncidentRow, PostingRow, ProposalRow, WorkRow
from bot.store.visibility import visible
from kb.model import NOT_FAILED

SCHEMA = "signalbox.handover/1"
MOST = 25  # lines per list
LONGEST = 160  # characters of text per line
WATCHED = timedelta(days=3)  # jobs diagnosed earlier than this may have ended long ago
RUNS_STILL = ("running", "hung", "degraded")  # phases of a job that had not ended when it was diagnosed


@dataclass(frozen=True, slots=True)
class HandoverIncident:
    """An incident.

    `fault`: that of the first diagnosis, or else the verdict; `told`: its summary or its last step; `by`: who took that step.
    """

    incident: int
    job: str
    fault: str
    told: str
    at: datetime
    state: str = "open"
    assignee: str | None = None
    by: str | None = None


@dataclass(frozen=True, slots=True)
class HandoverSection:
    """The first entries of a list, and its total count."""

    count: int = 0
    lines: tuple[HandoverIncident, ...] = ()


@dataclass(frozen=True, slots=True)
class HandoverNode:
    """A node that is excluded, or proposed for exclusion. `scope`: cluster or job; `job`: the job of that scope."""

    node: str
    cluster: str
    state: str
    why: str
    since: datetime
    until: datetime | None = None
    scope: str = "cluster"
    job: str = ""


@dataclass(frozen=True, slots=True)
class HandoverProposal:
    """A proposed rule. `error`: why it waits."""

    rule: str
    state: str
    who: str
    url: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class PendingWork:
    """Pending work of people and workers. `questions`: people asked for a cause who have not answered."""

    proposals: tuple[HandoverProposal, ...] = ()
    more_proposals: int = 0
    nodes: tuple[HandoverNode, ...] = ()
    more_nodes: int = 0
    questions: HandoverSection = HandoverSection()
    queued: int = 0
    running: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class Handover:
    """The handover of a tenant.

    `snoozed`: number of snoozed incidents; `watched`: jobs that were still running when diagnosed, with open
    incidents.
    """

    tenant: str
    since: datetime
    until: datetime
    open: HandoverSection
    snoozed: HandoverSection
    barred: tuple[HandoverNode, ...]
    more_barred: int
    watched: HandoverSection
    waiting: PendingWork
    new: HandoverSection
    closed: HandoverSection
    changed: HandoverSection
    schema: str = SCHEMA


def handover(store: Database, tenant: str, since: datetime, now: datetime) -> Handover:
    """The handover as of `now`, with the changes since `since`. It is passed on, so it leaves out what is private.

    Raises:
        StoreError: the store cannot be read.
    """
    with store.errors(), store.session() as session:
        barred, more_barred = _nodes(session, tenant, "barred", now)
        return Handover(
            tenant,
            since,
            now,
            open=_incidents(session, tenant, now, to_do(now)),
            snoozed=_incidents(session, tenant, now, in_state("snoozed", now)),
            barred=barred,
            more_barred=more_barred,
            watched=_incidents(
                session,
                tenant,
                now,
                to_do(now),
                col(IncidentRow.phase).in_(RUNS_STILL),
                col(IncidentRow.created_at) >= min(since, now - WATCHED),
            ),
            waiting=_waiting(session, tenant, since, now),
            new=_incidents(
                session,
                tenant,
                now,
                col(IncidentRow.created_at) >= since,
                col(IncidentRow.backfilled).is_(False),
                col(IncidentRow.verdict).not_in(NOT_FAILED),
            ),
            closed=_closed(session, tenant, since, now),
            changed=_changed(session, tenant, since, now),
        )


def dumps(found: Handover) -> bytes:
    """The handover as JSON, with times as ISO 8601 in UTC."""
    return msgspec.json.encode(asdict(found))


# --- incidents -------------------------------------------------------------------------------------------------------


def _incidents(session: Session, tenant: str, now: datetime, *conditions: ColumnElement[bool]) -> HandoverSection:
    asked = (col(IncidentRow.tenant) == tenant, visible(), *conditions)
    count = session.exec(select(func.count(col(IncidentRow.id))).where(*asked)).one()
    newest = (col(IncidentRow.created_at).desc(), col(IncidentRow.id).desc())
    rows = session.exec(select(IncidentRow).where(*asked).order_by(*newest).limit(MOST)) if count else ()
    return HandoverSection(count, tuple(_line(row, now) for row in rows))


def _line(
    row: IncidentRow, now: datetime, words: str | None = None, *, at: datetime | None = None, by: str | None = None
) -> HandoverIncident:
    return HandoverIncident(
        row.id or 0,
        _safe_text(run_name(row)),
        row.fault or row.verdict,
        _safe_text(row.summary if words is None else words),
        at or row.created_at,
        state_of(row, now),
        row.assignee,
        by,
    )


def _closed(session: Session, tenant: str, since: datetime, now: datetime) -> HandoverSection:
    """Incidents closed in the time range, each once, with the last feedback."""
    asked = (
        col(IncidentRow.tenant) == tenant,
        visible(),
        col(AnnotationRow.at) >= since,
        col(AnnotationRow.cause).is_not(None),
        in_state("closed", now),
    )
    last = (
        select(func.max(AnnotationRow.id))
        .join(IncidentRow, col(IncidentRow.id) == col(AnnotationRow.incident_id))
        .where(*asked)
        .group_by(col(AnnotationRow.incident_id))
    )
    rows = session.exec(
        select(AnnotationRow, IncidentRow)
        .join(IncidentRow, col(IncidentRow.id) == col(AnnotationRow.incident_id))
        .where(col(AnnotationRow.id).in_(last))
        .order_by(col(AnnotationRow.at).desc(), col(AnnotationRow.id).desc())
    ).all()
    lines = tuple(
        _line(row, now, said.fault or (said.cause or "").replace("_", " "), at=said.at, by=said.who)
        for said, row in rows[:MOST]
    )
    return HandoverSection(len(rows), lines)


def _changed(session: Session, tenant: str, since: datetime, now: datetime) -> HandoverSection:
    """Other changes: acknowledged, assigned, snoozed, merged, reopened."""
    count, steps = steps_since(session, tenant, since, MOST)
    numbers = {step.incident for step in steps}
    rows = {row.id: row for row in session.exec(select(IncidentRow).where(col(IncidentRow.id).in_(numbers)))}
    lines = (
        _line(rows[step.incident], now, step_text(step, step.incident), at=step.at, by=step.step.who)
        for step in steps
        if step.incident in rows
    )
    return HandoverSection(count, tuple(lines))


# --- pending work ------------------------------------------------------------------------------------------------------


def _waiting(session: Session, tenant: str, since: datetime, now: datetime) -> PendingWork:
    open_proposals = (col(ProposalRow.tenant) == tenant, col(ProposalRow.state).in_(("asked", "open", "failed")))
    proposals = session.exec(
        select(ProposalRow).where(*open_proposals).order_by(col(ProposalRow.id).desc()).limit(MOST)
    )
    count = session.exec(select(func.count(col(ProposalRow.id))).where(*open_proposals)).one()
    proposed = tuple(
        HandoverProposal(
            proposal.rule,
            proposal.state,
            proposal.who,
            proposal.url,
            _safe_text(proposal.error) if proposal.error else None,
        )
        for proposal in proposals
    )
    nodes, more = _nodes(session, tenant, "proposed", now)
    work = dict(
        session.exec(
            select(WorkRow.state, func.count(col(WorkRow.id)))
            .where(
                col(WorkRow.tenant) == tenant,
                col(WorkRow.kind) == DIAGNOSE,
                or_(
                    col(WorkRow.state).in_((WorkState.WAITING, WorkState.RUNNING)),
                    (col(WorkRow.state) == WorkState.FAILED) & (col(WorkRow.done_at) >= since),
                ),
            )
            .group_by(col(WorkRow.state))
        ).all()
    )
    return PendingWork(
        proposed,
        max(0, count - len(proposed)),
        nodes,
        more,
        _questions(session, tenant, now),
        work.get("waiting", 0),
        work.get("running", 0),
        work.get("failed", 0),
    )


def _questions(session: Session, tenant: str, now: datetime) -> HandoverSection:
    """Unanswered reminders in Slack."""
    asked = (
        col(PostingRow.tenant) == tenant,
        col(PostingRow.state) == PostingState.REMINDER,
        col(PostingRow.sent).is_not(None),
        col(PostingRow.facts).not_like('%"dismissed":true%'),
        visible(),
        to_do(now),
    )
    joined = col(IncidentRow.id) == col(PostingRow.incident_id)
    count = session.exec(select(func.count(col(PostingRow.id))).join(IncidentRow, joined).where(*asked)).one()
    rows = session.exec(
        select(IncidentRow, PostingRow.asked_by)
        .join(PostingRow, joined)
        .where(*asked)
        .order_by(col(PostingRow.id).desc())
        .limit(MOST)
    )
    return HandoverSection(count, tuple(_line(row, now, by=who) for row, who in rows))


def _nodes(session: Session, tenant: str, state: str, now: datetime) -> tuple[tuple[HandoverNode, ...], int]:
    """The nodes in a state, and how many more there are."""
    until = col(BarRow.until)
    asked = (col(BarRow.tenant) == tenant, col(BarRow.state) == state, or_(until.is_(None), until > now), shared())
    rows = session.exec(
        select(BarRow).where(*asked).order_by(col(BarRow.since).desc(), col(BarRow.id).desc()).limit(MOST)
    )
    found = tuple(
        HandoverNode(
            _safe_text(row.node),
            row.cluster,
            row.state,
            _safe_text(row.why),
            row.since,
            row.until,
            row.scope,
            _safe_text(row.job),
        )
        for row in rows
    )
    count = session.exec(select(func.count(col(BarRow.id))).where(*asked)).one() if len(found) == MOST else len(found)
    return found, count - len(found)


def _safe_text(text: str) -> str:
    """Text that is safe to show: secrets redacted, unprintable characters escaped, bounded length."""
    return cut(shown(redact(text[:2000])), LONGEST)


# --- in words --------------------------------------------------------------------------------------------------------


def text(found: Handover) -> str:
    """The handover as text for a terminal."""
    return "\n".join(
        [
            f"Handover, {_clock(found.since)} to {_clock(found.until)}",
            *_section("Open", found.open),
            *_section("Snoozed", found.snoozed) * bool(found.snoozed.count),
            "",
            f"Excluded nodes: {len(found.barred) + found.more_barred or 'none'}",
            *(f"  {node_words(item)}" for item in found.barred),
            *_left_out(found.more_barred),
            *_section("Still running when diagnosed", found.watched),
            "",
            "Waiting:",
            *(f"  {line}" for line in waiting_words(found.waiting)),
            *_section("New", found.new),
            *_section("Closed", found.closed),
            *_section("Other changes", found.changed),
        ]
    )


def _section(title: str, listed: HandoverSection) -> list[str]:
    lines = [f"  {line_words(line)}" for line in listed.lines]
    return ["", f"{title}: {listed.count or 'none'}", *lines, *_left_out(listed.count - len(listed.lines))]


def _left_out(count: int) -> list[str]:
    return [f"  ... and {count} more"] if count > 0 else []


def line_words(handover_incident: HandoverIncident) -> str:
    """One line for an incident."""
    who = (
        f", {handover_incident.assignee}" if handover_incident.assignee and handover_incident.state != "closed" else ""
    )
    by = f" (by {handover_incident.by})" if handover_incident.by else ""
    return f"{handover_incident.incident}  {_clock(handover_incident.at)}  {handover_incident.job}: {handover_incident.fault}; {handover_incident.told}{by} [{handover_incident.state}{who}]"


def node_words(handover_node: HandoverNode) -> str:
    """One line for a node."""
    scope = f" for job {handover_node.job}" if handover_node.scope == "job" else ""
    until = f" until {_clock(handover_node.until)}" if handover_node.until is not None else ""
    return f"{handover_node.node} ({handover_node.cluster}){scope}{until}: {handover_node.why}"


def waiting_words(found: PendingWork) -> Sequence[str]:
    """Pending work, one line each, or a line that says there is none."""
    lines = [f"rule {proposal.rule}, {proposal.state}{f': {proposal.error}' if proposal.error else ''}, proposed by {proposal.who}"
             for proposal in found.proposals]  # fmt: skip
    lines += [f"{many(found.more_proposals, 'more proposed rule')}"] * bool(found.more_proposals)
    lines += [f"exclude {node_words(node)}?" for node in found.nodes]
    lines += [f"{many(found.more_nodes, 'more node')} proposed for exclusion"] * bool(found.more_nodes)
    lines += [f"{many(found.questions.count, 'incident')} waiting for somebody to confirm the cause"] * bool(
        found.questions.count
    )
    queue = [f"{found.queued} queued" if found.queued else "", f"{found.running} running" if found.running else "",
             f"{found.failed} failed" if found.failed else ""]  # fmt: skip
    diagnoses = ", ".join(item for item in queue if item)
    return [*lines, *([f"diagnoses: {diagnoses}"] if diagnoses else [])] or ["nothing"]


def _clock(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M}Z"
