"""Retention of rows: what is removed from each table, and after how long."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, delete, update
from sqlmodel import Session, SQLModel, col

from bot.store.database import Database
from bot.store.idempotency import KEPT_DAYS
from bot.store.states import OutboxState, WorkState
from bot.store.tables import (
    AuditRow,
    ChoiceRow,
    ClaimRow,
    DraftRow,
    GoodEndRow,
    MuteRow,
    OutboxRow,
    PresenceRow,
    RequestRow,
    SeenRow,
    WorkRow,
)

DAYS: Mapping[type[SQLModel], int] = {
    SeenRow: KEPT_DAYS,  # Slack delivers again for an hour at most
    ChoiceRow: 7,  # buttons that offer one of several
    OutboxRow: 30,  # what was sent
    WorkRow: 30,  # what is done
    DraftRow: 30,  # what came of them stands in the proposals
    MuteRow: 90,  # since they ended
    PresenceRow: 30,  # a week counts
    GoodEndRow: 120,  # how advice fared is told of 90 days
    AuditRow: 400,
    ClaimRow: 400,
}
REPLY_TO = timedelta(minutes=30)  # for so long Slack takes answers there


def prune_rows(store: Database, now: datetime) -> dict[str, int]:
    """Remove old rows from all tables and expired reply addresses.

    Return the number removed per table, without zeros.
    """
    found: dict[str, int] = {}
    for table in DAYS:
        with store.errors(), store.session(write=True) as session:
            count = session.execute(delete(table).where(*_over(table, now - timedelta(days=DAYS[table])))).rowcount  # type: ignore[attr-defined]
            found[str(table.__tablename__)] = int(count)
    with store.errors(), store.session(write=True) as session:
        found["reply_to"] = _forget_addresses(session, now)
    return {name: count for name, count in found.items() if count}


def _over(table: type[SQLModel], before: datetime) -> tuple[ColumnElement[bool], ...]:
    """What holds of the rows that go."""
    if table is OutboxRow:
        return col(OutboxRow.state) == OutboxState.SENT, col(OutboxRow.created_at) < before
    if table is WorkRow:
        return col(WorkRow.state).in_((WorkState.DONE, WorkState.FAILED)), col(WorkRow.done_at) < before
    if table is MuteRow:
        return (col(MuteRow.until) < before,)
    if table is ChoiceRow:
        return (col(ChoiceRow.created_at) < before,)
    return (col(table.at) < before,)  # type: ignore[attr-defined]


def _forget_addresses(session: Session, now: datetime) -> int:
    old = col(RequestRow.reply_to).is_not(None), col(RequestRow.created_at) < now - REPLY_TO
    return int(session.execute(update(RequestRow).where(*old).values(reply_to=None)).rowcount)  # type: ignore[attr-defined]
