"""The outbox: files, replies to one person, annotations for other systems. Each item is sent once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import or_, true, update
from sqlmodel import Session, col, select

from bot.notify.messages import LEASE, Posting, encode_json, posting_of
from bot.store.database import Repository, insert_new
from bot.store.leases import claim_row, lease_free
from bot.store.states import OutboxState
from bot.store.tables import OutboxRow, PostingRow

GIVEN_UP = timedelta(days=1)  # items are dropped after this long


@dataclass(frozen=True, slots=True)
class OutboxItem:
    """An outbox item. `state`: COMPLETING if the last call may have taken effect."""

    id: int
    key: str
    tenant: str
    method: str
    payload: Mapping[str, Any]
    state: str
    tries: int
    created_at: datetime
    posting: Posting | None


class Outbox(Repository):
    """The outbox in one database."""

    def claim_outbox_item(
        self, now: datetime, *, only: Collection[str] | None = None, without: Collection[str] = ()
    ) -> OutboxItem | None:
        """Claim the next item for this sender. An item that belongs to a message waits until the message is delivered.

        `only`, `without`: the methods to choose from, and those to skip.
        """
        due = (
            select(OutboxRow.id)
            .outerjoin(PostingRow, col(PostingRow.id) == col(OutboxRow.posting_id))
            .where(
                col(OutboxRow.state).in_((OutboxState.WAITING, OutboxState.SENDING, OutboxState.COMPLETING)),
                col(OutboxRow.ready_at) <= now,
                lease_free(OutboxRow.lease_until, now),
                or_(col(OutboxRow.posting_id).is_(None), col(PostingRow.sent) > 0),
                col(OutboxRow.method).not_in(without),
                true() if only is None else col(OutboxRow.method).in_(only),
            )
            .order_by(col(OutboxRow.id))
            .limit(1)
        )
        with self.database.errors(), self.database.session(write=True) as session:
            row = claim_row(session, OutboxRow, due, {"lease_until": now + LEASE, "tries": col(OutboxRow.tries) + 1})
            if row is None:
                return None
            item = _outbox_item(session, row)
            if row.state == OutboxState.WAITING:
                row.state = OutboxState.SENDING
                session.add(row)
            return item

    def set_item_state(
        self, item: OutboxItem, state: str, error: str | None = None, ready_at: datetime | None = None
    ) -> None:
        """Record that an item was sent, failed, is completing, or waits for a retry."""
        values: dict[str, Any] = {"state": state, "error": None if error is None else error[:500]}
        if state != OutboxState.COMPLETING:
            values["lease_until"] = None
        if ready_at is not None:
            values["ready_at"] = ready_at
        self.database.write(
            lambda session: session.execute(update(OutboxRow).where(col(OutboxRow.id) == item.id).values(**values))
        )


def enqueue_item(
    session: Session,
    key: str,
    tenant: str,
    method: str,
    payload: Mapping[str, Any],
    *,
    now: datetime,
    posting: int | None = None,
) -> bool:
    """Add an item that is sent once. Return whether it is new."""
    row = OutboxRow(
        key=key,
        tenant=tenant,
        method=method,
        payload=encode_json(payload),
        posting_id=posting,
        created_at=now,
        ready_at=now,
    )
    return insert_new(session, OutboxRow, row.model_dump(exclude={"id"})) is not None


def enqueue_files(session: Session, posting: int, incident: int, now: datetime) -> None:
    """Add the evidence and timeline of an incident to the thread of a message, once."""
    row = session.get_one(PostingRow, posting)
    enqueue_item(
        session, f"files:{posting}:{incident}", row.tenant, "files", {"incident": incident}, now=now, posting=posting
    )


def _outbox_item(session: Session, row: OutboxRow) -> OutboxItem:
    posting = session.get(PostingRow, row.posting_id) if row.posting_id is not None else None
    return OutboxItem(
        id=row.id or 0,
        key=row.key,
        tenant=row.tenant,
        method=row.method,
        payload=msgspec.json.decode(row.payload),
        state=row.state,
        tries=row.tries,
        created_at=row.created_at,
        posting=None if posting is None else posting_of(session, posting),
    )
