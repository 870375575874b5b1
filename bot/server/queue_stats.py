"""How the service stands at this moment: what waits, for how long, what is open. For whoever operates it."""

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
    """`work`: pieces of work by kind and state, of those that are not done; `oldest`: seconds that the oldest one waits.

    `unsent`: messages and items that are due; `unsent_oldest`: seconds that the oldest one is due; `given_up`: those that Slack
    did not take for good. `incidents`: all that are kept; `open`: those without a close-out.
    """

    work: Mapping[tuple[str, str], int]
    oldest: float
    unsent: int
    unsent_oldest: float
    given_up: int
    incidents: int
    open: int


def queue_stats(database: Database, now: datetime) -> QueueStats:
    """As the store says.

    Raises:
        StoreError: it cannot be used.
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
    """How many messages are due, since when the oldest, and how many were given up."""
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
