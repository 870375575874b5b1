"""Automatic notifications: where an answer goes, whether it is posted there, and in which thread. One transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from sqlmodel import Session, col, select

from bot.config.chat import Tenant
from bot.notify.messages import add_notification
from bot.notify.mutes import active_mutes, load_flap, load_verdicts, notification_times, save_flap
from bot.policy.notifications import Decision, Subject, decide, rollout_channels, subject_of
from bot.policy.routing import Destination, JobFacts, Link, continues, destinations, link_of
from bot.store.idempotency import add_if_new
from bot.store.states import PostingState
from bot.store.tables import IncidentRow, PostingRow
from bot.store.visibility import Viewer, visible
from kb.model import NOT_FAILED
from kb.report import Report

SILENT = NOT_FAILED  # verdicts without an automatic message


def assign_chain(session: Session, incident: IncidentRow, link: Link, at: datetime) -> str:
    """Assign an incident to the chain of its job's attempts; return the chain."""
    if incident.chain is not None:
        return incident.chain
    earlier = session.exec(
        select(IncidentRow)
        .where(
            col(IncidentRow.tenant) == incident.tenant,
            col(IncidentRow.id) != incident.id,
            visible(Viewer(incident.private_to)),
            (col(IncidentRow.link_job) == link.job)
            | (col(IncidentRow.link_name).is_not(None) & (col(IncidentRow.link_name) == link.name)),
        )
        .order_by(col(IncidentRow.id).desc())
        .limit(20)
    ).all()
    chain = link.job
    for measured_event in earlier:
        other = Link(measured_event.link_job or "", measured_event.link_name)
        if measured_event.chain and continues(
            link, at.timestamp(), other, (measured_event.ended_at or measured_event.created_at).timestamp()
        ):
            chain = measured_event.chain
            break
    incident.link_job, incident.link_name, incident.chain = link.job, link.name, chain
    session.add(incident)
    return chain


def announce(
    session: Session,
    wanted: Tenant,
    incident: IncidentRow,
    *,
    report: Report,
    job: JobFacts,
    why: str,
    now: datetime,
) -> list[int]:
    """Notify all destinations of an incident; return the ids of new messages. Repeated calls add nothing."""
    chain = assign_chain(session, incident, link_of(job), incident.ended_at or now)
    if report.verdict in SILENT or incident.id is None:
        return []
    verdicts = list(load_verdicts(session, incident.tenant))
    only = rollout_channels(wanted.quiet, sum(verdict.right for verdict in verdicts), len(verdicts))
    mutes = active_mutes(session, incident.tenant, now)
    places = destinations(report, job, wanted.subscriptions, wanted.people, announce=wanted.announce, only=only)
    subject = subject_of(report, incident.tenant, chain, job.id, job.name)
    made = []
    for place in places:
        once = f"unasked:{incident.id}:{place.to}"
        if session.exec(select(PostingRow.id).where(col(PostingRow.once) == once)).first() is not None:
            continue
        decision = decide(
            subject,
            place.to,
            now.timestamp(),
            mutes=mutes,
            before=load_flap(session, place.to, chain, report.fingerprint),
            posted=notification_times(session, place.to, now - timedelta(seconds=wanted.cap.span)),
            cap=wanted.cap,
            flapping=wanted.flapping,
        )
        save_flap(session, place.to, chain, report.fingerprint, decision.flap)
        made += _notify(
            session,
            wanted,
            incident,
            subject=subject,
            place=place,
            decision=decision,
            once=once,
            why=why,
            now=now,
        )
    return made


def _notify(
    session: Session,
    wanted: Tenant,
    incident: IncidentRow,
    *,
    subject: Subject,
    place: Destination,
    decision: Decision,
    once: str,
    why: str,
    now: datetime,
) -> list[int]:
    assert incident.id is not None  # noqa: S101 - it is stored
    if decision.do == "post":
        facts: dict[str, Any] = {
            "why": why,
            "reasons": list(place.why),
            "mentions": [asdict(mention) for mention in place.mentions],
            "times": decision.flap.count,
        }
        row = add_notification(
            session,
            once,
            tenant=incident.tenant,
            channel=place.to,
            chain=subject.chain,
            incident=incident.id,
            facts=facts,
            now=now,
        )
        return [row.id] if row.id is not None else []
    if decision.do == "count":
        _count(session, place.to, subject, decision)
    elif decision.do == "hold":
        return _hold(session, wanted, incident, place=place, once=once, now=now)
    return []


def _count(session: Session, channel: str, subject: Subject, decision: Decision) -> None:
    """Update the repeat count in the existing message."""
    row = session.exec(
        select(PostingRow)
        .where(
            col(PostingRow.channel) == channel,
            col(PostingRow.chain) == subject.chain,
            col(PostingRow.state) == PostingState.ANSWERED,
            col(PostingRow.asked_by).is_(None),
        )
        .order_by(col(PostingRow.id).desc())
    ).first()
    if row is None:
        return
    facts: dict[str, Any] = msgspec.json.decode(row.facts)
    row.facts = msgspec.json.encode({**facts, "times": decision.flap.count}).decode()
    row.version += 1
    session.add(row)


def _hold(
    session: Session, wanted: Tenant, incident: IncidentRow, *, place: Destination, once: str, now: datetime
) -> list[int]:
    """Add a line to the channel's one message that lists held-back failures of this period."""
    span = max(1.0, wanted.cap.span)
    period = int(now.timestamp() // span)
    held = f"rest:{incident.tenant}:{place.to}:{period}"
    if not add_if_new(session, f"held:{once}", now):
        return []  # it is already in the list
    row = session.exec(select(PostingRow).where(col(PostingRow.once) == held).with_for_update()).first()
    line = {"at": now.timestamp(), "incident": incident.id, "job": incident.job_name or incident.job_id or "?"}
    line["fault"] = incident.fault or incident.verdict
    if row is None:
        row = add_notification(
            session,
            held,
            tenant=incident.tenant,
            channel=place.to,
            chain=held,
            incident=0,
            facts={"held": []},
            now=now,
        )
        row.state, row.incident_id = PostingState.HELD_BACK, None
    facts: Mapping[str, Any] = msgspec.json.decode(row.facts)
    row.facts = msgspec.json.encode({"held": [*facts.get("held", []), line][-200:]}).decode()
    row.version += 1
    session.add(row)
    session.flush()
    return []


def end_time(report: Report, record_end: float | None) -> datetime | None:
    """Return when the job ended, if known."""
    end = record_end or report.window[1]
    try:
        return None if end is None else datetime.fromtimestamp(end, UTC)
    except (ValueError, OverflowError, OSError):
        return None
