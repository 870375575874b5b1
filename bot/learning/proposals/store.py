"""Proposed rules. Each is stored first, so that a crash at any point still results in exactly one pull request.

There is one proposal per pattern. The desired content has a version, and so has the content on the forge; a worker
brings the second up to the first (`bot.learning.proposals.publish`). A proposal closed by a person is not proposed
again unless a person asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec
import zstandard
from sqlalchemy import or_, update
from sqlmodel import Session, col, select

from bot.config.rules import PullRequests
from bot.forges.base import PREFIX, PlanRefused, placed, refuse_rule
from bot.notify.messages import add_message
from bot.queue.tasks import TaskRequest, enqueue_task
from bot.store.database import Database, insert_new
from bot.store.states import PostingState
from bot.store.tables import PostingRow, ProposalRow

PROPOSE = "propose"
LIVE = ("asked", "open")
HOUR = timedelta(hours=1)
_LARGEST = 64 << 20  # bytes after unpacking
State = Literal["asked", "open", "merged", "closed", "failed"]
How = Literal["new", "updated", "same", "closed", "merged"]


@dataclass(frozen=True, slots=True)
class ProposedRule:
    """A rule to propose. `key`: a fingerprint of its patterns; `files`: by path below the rules folder.

    `fault`: its fault class. `who`: who requested it. `why`: the feedback it is based on; `lines`: log lines that it
    matches; `silent`: lines that it must not match. `figures`, `passed`: results of the backtest (`replayed`).
    `notes`: hints for reviewers; `questions`: what they should add.
    """

    key: str
    tenant: str
    rule: str
    title: str
    fault: str
    who: str
    files: Mapping[str, bytes]
    incidents: Sequence[int] = ()
    why: str = ""
    patterns: Sequence[str] = ()
    lines: Sequence[str] = ()
    silent: Sequence[str] = ()
    figures: Sequence[tuple[str, str]] = ()
    notes: Sequence[str] = ()
    passed: bool = False
    questions: Sequence[str] = ()


class ProposalContent(msgspec.Struct, frozen=True):
    """The stored content of a proposal.

    `keys`: fingerprints of its patterns so far; `gone`: files of earlier versions.
    """

    title: str
    fault: str
    files: dict[str, bytes]
    incidents: list[int] = []
    why: str = ""
    patterns: list[str] = []
    lines: list[str] = []
    silent: list[str] = []
    figures: list[tuple[str, str]] = []
    notes: list[str] = []
    passed: bool = False
    keys: list[str] = []
    gone: list[str] = []
    questions: list[str] = []


@dataclass(frozen=True, slots=True)
class ProposalRequest:
    """The result of a request. `how`: closed or merged, if the proposal was decided earlier and stays that way."""

    proposal: int
    how: How


@dataclass(frozen=True, slots=True)
class Proposal:
    """A stored proposal; see ProposalRow."""

    id: int
    key: str
    tenant: str
    rule: str
    incident_id: int | None
    who: str
    state: State
    draft: bool
    version: int
    sent: int | None
    commented: int | None
    forge: str | None
    branch: str
    number: int | None
    url: str | None
    head: str | None
    etag: str | None
    posting_id: int | None
    created_at: datetime
    opened_at: datetime | None
    looked_at: datetime | None
    ended_at: datetime | None
    ready_at: datetime
    tries: int
    error: str | None
    content: ProposalContent


# --- requests ---------------------------------------------------------------------------------------------------


def propose(
    database: Database,
    settings: PullRequests,
    proposed: ProposedRule,
    now: datetime,
    *,
    again: bool = False,
    posting: int | None = None,
) -> ProposalRequest:
    """Store a proposal and enqueue a task for it. `again`: requested by a person although it was decided before.

    `posting`: the message about it, which is updated whenever the proposal changes.

    Raises:
        PlanRefused: the content must not go into a repository.
        StoreError: the store cannot be used.
    """
    refuse(settings, proposed)
    return database.write(
        lambda session: propose_within(session, settings, proposed, now, again=again, posting=posting)
    )


def refuse(settings: PullRequests, proposed: ProposedRule) -> None:
    """Check whether the content may go into a repository.

    Raises:
        PlanRefused: the content must not go into a repository.
    """
    refuse_rule(proposed.rule)
    homes = [path.split("/")[-2] for path in placed(proposed.files, settings.folder) if path.endswith("/rule.yaml")]
    if homes != [proposed.rule]:
        raise PlanRefused(f"its files contain no rule.yaml for {proposed.rule}")
    if not proposed.key.isprintable() or not 1 <= len(proposed.key) <= 200:
        raise PlanRefused("the fingerprint of its patterns is not valid")


def propose_within(
    session: Session,
    settings: PullRequests,
    proposed: ProposedRule,
    now: datetime,
    *,
    again: bool = False,
    posting: int | None = None,
) -> ProposalRequest:
    """`propose` in a write transaction, after `refuse`."""
    row = _existing_proposal(session, proposed)
    if row is None:
        made = ProposalRow(
            key=proposed.key,
            tenant=proposed.tenant,
            rule=proposed.rule,
            incident_id=next(iter(proposed.incidents), None),
            who=proposed.who,
            forge=settings.forge,
            branch=_branch(session, proposed.rule),
            content_zstd=_packed(_content(proposed)),
            posting_id=posting,
            created_at=now,
            ready_at=now,
        )
        number = insert_new(session, ProposalRow, made.model_dump(exclude={"id"}))
        if number is not None:
            work_within(session, number, proposed.tenant, now)
            return ProposalRequest(number, "new")
        row = session.exec(select(ProposalRow).where(col(ProposalRow.key) == proposed.key)).one()
    number = row.id or 0
    if row.state in ("closed", "merged") and not again:
        return ProposalRequest(number, "closed" if row.state == "closed" else "merged")
    if (row.number is None and row.sent is None) or row.state not in LIVE:
        row.forge = settings.forge
    how = _renewed(session, row, proposed, now)
    row.posting_id = posting if posting is not None else row.posting_id
    session.add(row)
    session.flush()
    raised_within(session, row.posting_id, now)
    work_within(session, number, row.tenant, now)
    return ProposalRequest(number, how)


def _existing_proposal(session: Session, proposed: ProposedRule) -> ProposalRow | None:
    """Return the proposal of this pattern: the one with its key, or one for this rule that had the pattern or is undecided."""
    found = session.exec(select(ProposalRow).where(col(ProposalRow.key) == proposed.key).with_for_update()).first()
    if found is not None:
        return found
    same = select(ProposalRow).where(col(ProposalRow.rule) == proposed.rule).order_by(col(ProposalRow.id).desc())
    rows = session.exec(same.with_for_update()).all()
    live = next((row for row in rows if row.state in LIVE), None)
    return live or next((row for row in rows if proposed.key in unpacked(row.content_zstd).keys), None)


def _renewed(session: Session, row: ProposalRow, proposed: ProposedRule, now: datetime) -> How:
    """Replace the content. Return whether that changes anything."""
    old, new = unpacked(row.content_zstd), _content(proposed)
    gone = sorted((set(old.gone) | set(old.files)) - set(new.files)) if row.state in LIVE else []
    new = msgspec.structs.replace(new, keys=sorted({*old.keys, *new.keys}), gone=gone)
    if row.state in LIVE and new == old:
        row.ready_at = now  # a repeated request triggers another attempt
        return "same"
    if row.state in ("closed", "merged"):
        row.branch, row.number, row.url, row.head = _branch(session, row.rule), None, None, None
        row.opened_at = row.ended_at = row.commented = row.sent = None
        row.draft = True
    if row.state not in LIVE:
        row.state, row.ended_at = "asked", None
    row.version += 1
    row.content_zstd = _packed(new)
    row.etag, row.error, row.tries, row.ready_at = None, None, 0, now
    return "updated"


def _branch(session: Session, rule: str) -> str:
    """Return a branch name that no proposal has used. The branch of a decided one may still exist."""
    taken = set(session.exec(select(ProposalRow.branch).where(col(ProposalRow.branch).startswith(PREFIX + rule))).all())
    names = (PREFIX + rule if count == 1 else f"{PREFIX}{rule}-{count}" for count in range(1, 10_000))
    return next(name for name in names if name not in taken)


def _content(proposed: ProposedRule) -> ProposalContent:
    return ProposalContent(
        title=proposed.title,
        fault=proposed.fault,
        files=dict(proposed.files),
        incidents=list(proposed.incidents),
        why=proposed.why,
        patterns=list(proposed.patterns),
        lines=list(proposed.lines),
        silent=list(proposed.silent),
        figures=list(proposed.figures),
        notes=list(proposed.notes),
        questions=list(proposed.questions),
        passed=proposed.passed,
        keys=[proposed.key],
    )


# --- reading and changing --------------------------------------------------------------------------------------------


def proposal_of(database: Database, number: int) -> Proposal | None:
    """One proposal; None if it does not exist."""
    with database.errors(), database.session() as session:
        row = session.get(ProposalRow, number)
        return None if row is None else _proposal(row)


def proposals(database: Database, tenant: str | None = None, *, live: bool = False) -> tuple[Proposal, ...]:
    """All proposals, newest first. `live`: only undecided ones."""
    wanted = select(ProposalRow).order_by(col(ProposalRow.id).desc())
    if tenant is not None:
        wanted = wanted.where(col(ProposalRow.tenant) == tenant)
    if live:
        wanted = wanted.where(col(ProposalRow.state).in_(LIVE))
    with database.errors(), database.session() as session:
        return tuple(_proposal(row) for row in session.exec(wanted).all())


def tick(database: Database, now: datetime) -> int:
    """Enqueue tasks for all proposals that are due. Return how many."""
    due = select(ProposalRow.id, ProposalRow.tenant).where(
        col(ProposalRow.state).in_(LIVE), col(ProposalRow.ready_at) <= now
    )
    with database.errors(), database.session() as session:
        found = session.exec(due).all()

    def ask(session: Session) -> None:
        for number, tenant in found:
            work_within(session, number or 0, tenant, now)

    if found:
        database.write(ask)
    return len(found)


def work_within(session: Session, number: int, tenant: str, now: datetime) -> None:
    """Enqueue a task for a proposal."""
    enqueue_task(session, TaskRequest(PROPOSE, f"{PROPOSE}:{number}", tenant, f'{{"proposal":{number}}}'), now, 0.0)


def raised_within(session: Session, posting: int | None, now: datetime) -> None:
    """Raise the version of the message about a proposal."""
    if posting is not None:
        session.execute(
            update(PostingRow)
            .where(col(PostingRow.id) == posting)
            .values(version=col(PostingRow.version) + 1, ready_at=now, tries=0)
        )


def told_of_within(session: Session, number: int, *, channel: str, parent: int | None, now: datetime) -> None:
    """Add a message about the proposal in the thread of its incident; it is updated as the proposal advances."""
    row = session.get_one(ProposalRow, number)
    if row.posting_id is None:
        facts = {"proposal": number}
        row.posting_id = add_message(
            session,
            f"proposal:{number}",
            row.tenant,
            channel=channel,
            parent=parent,
            state=PostingState.PROPOSAL,
            facts=facts,
            now=now,
        )
        session.add(row)
    else:
        raised_within(session, row.posting_id, now)


def reserved_within(session: Session, number: int, settings: PullRequests, now: datetime) -> str | None:
    """Reserve one of the limited open slots; otherwise return why the proposal waits."""
    # lock all rows that count in one order, so that two workers reserve slots one after the other
    rows = session.exec(
        select(ProposalRow)
        .where(or_(col(ProposalRow.state).in_(LIVE), col(ProposalRow.opened_at) > now - HOUR))
        .order_by(col(ProposalRow.id))
        .with_for_update()
    ).all()
    own = next((row for row in rows if row.id == number), None)
    if own is None or own.opened_at is not None:
        return None
    counted = [row for row in rows if row.opened_at is not None and row.id != number and row.forge == settings.forge]
    standing = [measured_event for measured_event in counted if measured_event.state in LIVE]
    recent = sorted(
        measured_event.opened_at
        for measured_event in counted
        if measured_event.opened_at is not None and measured_event.opened_at > now - HOUR
    )
    waits = None
    if len(standing) >= settings.at_once:
        waits = f"waiting: {len(standing)} proposals are open; the limit is {settings.at_once}"
        own.ready_at = now + timedelta(seconds=settings.every)
    elif len(recent) >= settings.hourly:
        own.ready_at = recent[-settings.hourly] + HOUR
        waits = f"waiting until {own.ready_at:%H:%M} UTC: the limit is {settings.hourly} new ones an hour"
    if waits is None:
        own.opened_at, own.forge = now, settings.forge
    if own.error != waits:
        own.error = waits
        raised_within(session, own.posting_id, now)
    session.add(own)
    return waits


def changed(database: Database, proposal: Proposal, now: datetime, values: Mapping[str, Any], *, tell: bool) -> None:
    """Store the new state. `tell`: also update the message about the proposal."""

    def change(session: Session) -> None:
        session.execute(update(ProposalRow).where(col(ProposalRow.id) == proposal.id).values(**values))
        if tell:
            raised_within(session, proposal.posting_id, now)

    database.write(change)


def unpacked(packed: bytes) -> ProposalContent:
    """Return the content of a row."""
    return msgspec.json.decode(zstandard.decompress(packed, max_output_size=_LARGEST), type=ProposalContent)


def _packed(content: ProposalContent) -> bytes:
    return zstandard.compress(msgspec.json.encode(content))


def _proposal(row: ProposalRow) -> Proposal:
    kept = {field.name: getattr(row, field.name) for field in fields(Proposal) if field.name != "content"}
    return Proposal(**kept, content=unpacked(row.content_zstd))
