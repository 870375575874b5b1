"""Our chat messages. Each is one row that says what the message is about; its text is composed and sent until the chat is up to date.

There is no queue of edits: an edit can be lost, repeated or overtaken without harm as long as the last one wins. A row therefore has
the version of its content and the version that was sent. Only an opening text is posted; everything that matters is an edit of it. If
a process is killed between the chat's response and our record, an opening text may stay without an answer, but there are never two. Files and
replies to one person go through the outbox.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import case, or_, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import aliased
from sqlmodel import Session, col, select

from bot.store.database import Repository
from bot.store.leases import claim_row, lease_free
from bot.store.states import PostingState
from bot.store.tables import PostingRow

LEASE = timedelta(seconds=60)  # a sender that is silent for this long is considered dead
MESSAGE_LEASE = timedelta(seconds=25)  # the same for a message, which takes at most two calls of ten seconds
_LASTING = ("nowhere", "job")
PROGRESS = timedelta(seconds=3)  # minimum time between two progress edits


@dataclass(frozen=True, slots=True)
class Posting:
    """A chat message; see `PostingRow`. `thread`: the id of the thread it is in."""

    id: int
    handle: str
    tenant: str
    channel: str
    thread: str | None
    ts: str | None
    parent: int | None
    chain: str | None
    work_id: int | None
    incident_id: int | None
    asked_by: str | None
    state: str
    version: int
    sent: int | None
    created_at: datetime
    tries: int
    facts: Mapping[str, Any] = field(default_factory=dict)


class Messages(Repository):
    """The messages in one database."""

    def show_progress(self, work_id: int, facts: Mapping[str, Any]) -> None:
        """Show the progress of a task in all its messages, each as soon as it can be edited again."""
        with self.database.errors(), self.database.session(write=True) as session:
            for row in session.exec(
                select(PostingRow)
                .where(col(PostingRow.work_id) == work_id, col(PostingRow.state) == PostingState.COLLECTING)
                .with_for_update()
            ):
                row.facts = kept_facts(row, facts)
                row.version += 1
                session.add(row)

    def message_by_handle(self, handle: str) -> Posting | None:
        """Return the message with this handle."""
        with self.database.errors(), self.database.session() as session:
            row = session.exec(select(PostingRow).where(col(PostingRow.handle) == handle[:64])).first()
            return None if row is None else posting_of(session, row)

    def claim_message(self, now: datetime) -> Posting | None:
        """Claim the oldest message that is out of date, for a minute."""
        head = aliased(PostingRow)
        due = (
            select(PostingRow.id)
            .where(
                or_(col(PostingRow.sent).is_(None), col(PostingRow.sent) < col(PostingRow.version)),
                col(PostingRow.ready_at) <= now,
                lease_free(PostingRow.lease_until, now),
                col(PostingRow.state) != PostingState.GONE,
                or_(
                    col(PostingRow.parent).is_(None),
                    col(PostingRow.ts).is_not(None),
                    col(PostingRow.parent).in_(select(head.id).where(col(head.ts).is_not(None))),
                ),
            )
            .order_by(col(PostingRow.sent).is_not(None), col(PostingRow.ready_at), col(PostingRow.id))
            .limit(1)
        )
        with self.database.errors(), self.database.session(write=True) as session:
            row = claim_row(
                session, PostingRow, due, {"lease_until": now + MESSAGE_LEASE, "tries": col(PostingRow.tries) + 1}
            )
            return None if row is None else posting_of(session, row)

    def release_edits(self) -> int:
        """Free the messages that a sender which is gone was editing; return how many. For a sender that starts.

        An edit may be done twice: should another sender be at it, the older version is edited again. A message that is not posted yet
        keeps its lease, for it would be posted twice.
        """

        def change(session: Session) -> int:
            leased = update(PostingRow).where(col(PostingRow.lease_until).is_not(None), col(PostingRow.ts).is_not(None))
            changed: Any = session.execute(leased.values(lease_until=None))
            return int(changed.rowcount)

        return self.database.write(change)

    def mark_delivered(self, posting: Posting, ts: str, channel: str, sent: int, now: datetime) -> bool:
        """Record that the chat shows version `sent` as message `ts`. If newer content exists, the message is due again immediately.

        False if it was already delivered as another message: this sender was too slow and lost its claim.
        """
        soon = now if sent == 0 else now + PROGRESS
        values = {"ts": ts, "channel": channel, "sent": sent, "lease_until": None, "tries": 0, "error": None}
        # only progress waits for the next edit: an answer may have arrived already
        ready = case((col(PostingRow.state) == PostingState.COLLECTING, soon), else_=now)

        def change(session: Session) -> bool:
            changed: Any = session.execute(
                update(PostingRow)
                .where(col(PostingRow.id) == posting.id, or_(col(PostingRow.ts).is_(None), col(PostingRow.ts) == ts))
                .values(**values, ready_at=ready)
            )
            return int(changed.rowcount) == 1

        return self.database.write(change)

    def retry_later(self, posting: Posting, at: datetime, error: str) -> None:
        """Record a failure; retry no earlier than `at`."""
        self._update(posting.id, {"lease_until": None, "ready_at": at, "error": error[:500]})

    def mark_gone(self, posting: Posting, error: str) -> None:
        """Record that the message cannot be sent, or was deleted in the chat."""
        self._update(posting.id, {"lease_until": None, "state": PostingState.GONE, "error": error[:500]})

    def redirect(self, posting: Posting, channel: str, facts: Mapping[str, Any], now: datetime) -> None:
        """Send the message to another channel, because the chat rejected the first one."""
        values = {
            "channel": channel,
            "thread_ts": None,
            "parent": None,
            "facts": encode_json({**posting.facts, **facts}),
        }
        self._update(posting.id, {**values, "lease_until": None, "ready_at": now})

    def postpone_reminder(self, posting: int, at: datetime) -> None:
        """Send a reminder again later, as a new message."""
        self._update(posting, {"ready_at": at, "ts": None, "sent": None})

    def dismiss_reminder(self, posting: int) -> None:
        """Dismiss a reminder. Its text then says so, and it is not sent again."""
        with self.database.errors(), self.database.session(write=True) as session:
            session.execute(
                update(PostingRow)
                .where(col(PostingRow.id) == posting)
                .values(facts='{"dismissed":true}', version=col(PostingRow.version) + 1)
            )

    def _update(self, posting: int, values: Mapping[str, Any]) -> None:
        self.database.write(
            lambda session: session.execute(update(PostingRow).where(col(PostingRow.id) == posting).values(**values))
        )


# --- within the caller's transaction ---------------------------------------------------------------------------------


def add_notification(
    session: Session,
    once: str,
    *,
    tenant: str,
    channel: str,
    chain: str,
    incident: int,
    facts: Mapping[str, Any],
    now: datetime,
) -> PostingRow:
    """Add an automatic message, in the thread of its chain's last message of the past day."""
    head = session.exec(
        select(PostingRow)
        .where(
            col(PostingRow.chain) == chain,
            col(PostingRow.channel) == channel,
            col(PostingRow.parent).is_(None),
            col(PostingRow.state) != PostingState.GONE,
            col(PostingRow.created_at) > now - timedelta(days=1),
            col(PostingRow.once) != once,
        )
        .order_by(col(PostingRow.id).desc())
    ).first()
    posting = add_once(
        session,
        PostingRow(
            handle=new_handle(),
            once=once,
            tenant=tenant,
            channel=channel,
            parent=None if head is None else head.id,
            chain=chain,
            incident_id=incident,
            state=PostingState.ANSWERED,
            facts=encode_json(facts),
            created_at=now,
            ready_at=now,
        ),
    )
    if head is not None:
        head.version += 1  # it shows the number of attempts
        session.add(head)
    return posting


def add_message(
    session: Session,
    once: str,
    tenant: str,
    *,
    channel: str,
    parent: int | None,
    state: str,
    facts: Mapping[str, Any],
    now: datetime,
) -> int:
    """Add a message of another kind, in the thread of `parent` if given. Return its id. The same `once` adds it only once."""
    row = PostingRow(
        handle=new_handle(), once=once, tenant=tenant, channel=channel, parent=parent, state=state, facts=encode_json(facts),
        created_at=now, ready_at=now,
    )  # fmt: skip
    return add_once(session, row).id or 0


def add_reminder(session: Session, posting: int, at: datetime, now: datetime) -> None:
    """Schedule a reminder to close the incident, sent only to the requester; once per incident."""
    row = session.get_one(PostingRow, posting)
    if row.asked_by is None or row.incident_id is None:
        return
    add_once(
        session,
        PostingRow(
            handle=new_handle(),
            once=f"remind:{row.incident_id}",
            tenant=row.tenant,
            channel=row.asked_by,
            incident_id=row.incident_id,
            asked_by=row.asked_by,
            state=PostingState.REMINDER,
            created_at=now,
            ready_at=at,
        ),
    )


def add_assignment(
    session: Session, once: str, tenant: str, *, incident: int, to: str, by: str, note: str, now: datetime
) -> None:
    """Add a direct message that tells somebody that an incident was assigned to them. `to`, `by`: Slack user ids."""
    add_once(
        session,
        PostingRow(
            handle=new_handle(),
            once=once,
            tenant=tenant,
            channel=to,
            incident_id=incident,
            asked_by=to,
            state=PostingState.ASSIGNED,
            facts=encode_json({"by": by, "note": note}),
            created_at=now,
            ready_at=now,
        ),
    )


def refresh_messages(session: Session, incidents: Sequence[int]) -> None:
    """Recompose and resend the messages about these incidents."""
    session.execute(
        update(PostingRow)
        .where(col(PostingRow.incident_id).in_(incidents))
        .values(version=col(PostingRow.version) + 1, tries=0)
    )


def add_once(session: Session, row: PostingRow) -> PostingRow:
    """Add the row, or return the existing row with the same `once`."""
    there = session.exec(select(PostingRow).where(col(PostingRow.once) == row.once)).first()
    if there is not None:
        return there
    try:
        with session.begin_nested():
            session.add(row)
            session.flush()
    except IntegrityError:
        return session.exec(select(PostingRow).where(col(PostingRow.once) == row.once)).one()
    return row


def new_handle() -> str:
    """Return a new random handle, which a button carries instead of an id."""
    return secrets.token_urlsafe(18)


def encode_json(facts: Mapping[str, Any]) -> str:
    """Return the JSON text of a row's facts or payload."""
    return msgspec.json.encode(facts).decode()


def kept_facts(row: PostingRow, facts: Mapping[str, Any]) -> str:
    """Return new facts of a message as JSON, with those that outlive its state, such as where it could not be posted."""
    before: dict[str, Any] = msgspec.json.decode(row.facts)
    return encode_json({**facts, **{name: before[name] for name in _LASTING if name in before}})


def posting_of(session: Session, row: PostingRow) -> Posting:
    """Return a row as a value, with the thread of its parent."""
    thread = row.thread_ts
    if row.parent is not None:
        head = session.get(PostingRow, row.parent)
        thread = head.ts if head is not None else None
    told = {name: getattr(row, name) for name in Posting.__dataclass_fields__ if name not in ("thread", "facts")}
    return Posting(**told, thread=thread, facts=msgspec.json.decode(row.facts))
