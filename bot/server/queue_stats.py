"""Queue figures for operators: what waits, for how long, what is open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func
from sqlmodel import Session, col, select

from bot.store.database import Database
from bot.store.states import OutboxState, WorkState
from bot.store.tables import IncidentRow, OutboxRow, PostingRow, WorkRow


@dataclass(frozen=True, slots=True)
class QueueStats:
    """`work`: unfinished tasks by kind and state; `oldest`: age of the oldest one in seconds.

    `unsent`: messages and outbox items that are due; `unsent_oldest`: seconds since the oldest became due; `given_up`: items that
    Slack rejected for good. `incidents`: all stored incidents; `open`: those without a close-out.
    """

    work: Mapping[tuple[str, str], int]
    oldest: float
    unsent: int
    unsent_oldest: float
    given_up: int
    incidents: int
    open: int


def queue_stats(database: Database, now: datetime) -> QueueStats:
    """Read the current figures from the store.

    Raises:
        StoreError: the store is unavailable.
    """
    with database.errors(), database.session() as session:
        kinds = select(WorkRow.kind, WorkRow.state, func.count()).where(col(WorkRow.state) != WorkState.DONE)
        work = {(kind, state): count for kind, state, count in session.exec(kinds.group_by("kind", "state")).all()}
        first = session.exec(
            select(func.min(WorkRow.created_at)).where(
                col(WorkRow.state) != WorkState.DONE, col(WorkRow.state) != WorkState.FAILED
            )
        ).one()
        unsent, since, given_up = _unsent_counts(session, now)
        closed = func.count(col(IncidentRow.closed_at))
        incidents, shut = session.exec(select(func.count(), closed).select_from(IncidentRow)).one()
        return QueueStats(
            work,
            _age(first, now),
            unsent,
            _age(since, now),
            given_up,
            incidents,
            incidents - shut,
        )


def _unsent_counts(session: Session, now: datetime) -> tuple[int, datetime | None, int]:
    """Return how many messages are due, since when the oldest is, and how many were given up."""
    due = (col(PostingRow.sent).is_(None) | (col(PostingRow.sent) < col(PostingRow.version))) & (
        col(PostingRow.ready_at) <= now
    )
    messages, first = session.exec(
        select(func.count(), func.min(PostingRow.ready_at)).select_from(PostingRow).where(due)
    ).one()
    waiting = (
        (col(OutboxRow.state) != OutboxState.SENT)
        & (col(OutboxRow.state) != OutboxState.FAILED)
        & (col(OutboxRow.ready_at) <= now)
    )
    items, earliest = session.exec(
        select(func.count(), func.min(OutboxRow.ready_at)).select_from(OutboxRow).where(waiting)
    ).one()
    failed = session.exec(
        select(func.count()).select_from(OutboxRow).where(col(OutboxRow.state) == OutboxState.FAILED)
    ).one()
    times = [item for item in (first, earliest) if item is not None]
    return messages + items, min(times, default=None), failed


def _age(since: datetime | None, now: datetime) -> float:
    return max(0.0, (now - since).total_seconds()) if since is not None else 0.0
