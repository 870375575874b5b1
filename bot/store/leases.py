"""Claims that several replicas compete for: the next due row of a table, or a period in which something is done once.

Each claim is one statement or one short transaction, on SQLite and PostgreSQL alike. PostgreSQL skips rows that another
replica has locked. SQLite has one writer at a time. A claim with a lease lapses when its holder dies.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Select, or_, update
from sqlalchemy.exc import IntegrityError
from sqlmodel import Session, SQLModel, col

from bot.store.tables import ClaimRow

Row = TypeVar("Row", bound=SQLModel)


def lease_free(lease_until: Any, now: datetime) -> ColumnElement[bool]:
    """The condition that nobody holds a lease: none was taken, or it lapsed. `lease_until`: the column with the end of the lease."""
    return or_(col(lease_until).is_(None), col(lease_until) < now)


def claim_row(
    session: Session, table: type[Row], due: Select[Any], values: Mapping[str, Any], *conditions: ColumnElement[bool]
) -> Row | None:
    """Claim the row whose id `due` selects, by writing `values` to it; None if there is none. `session` must write.

    `conditions`: what must still be true of the row when it is written.
    """
    if session.get_bind().dialect.name != "sqlite":
        due = due.with_for_update(skip_locked=True, of=table)
    number = col(table.id)  # type: ignore[attr-defined]  # each table that is claimed from has an integer key
    change = update(table).where(number == due.scalar_subquery(), *conditions).values(**values).returning(table)
    return session.execute(change).scalar_one_or_none()


def claim_period(
    session: Session, kind: str, period: str, *, now: datetime, holder: str, lease: timedelta | None = None
) -> bool:
    """Claim a period and return whether the caller now holds it. `session` must write.

    `lease`: take over a claim that is older than this and was never completed; None: never take over.
    """
    claim = session.get(ClaimRow, (kind, period))
    if claim is None:
        try:
            with session.begin_nested():
                session.add(ClaimRow(kind=kind, period=period, at=now, who=holder))
                session.flush()
        except IntegrityError:  # another replica was faster
            return False
        return True
    if lease is None or claim.state == "done" or claim.at > now - lease:
        return False
    taken = session.execute(
        update(ClaimRow)
        .where(
            col(ClaimRow.kind) == kind,
            col(ClaimRow.period) == period,
            col(ClaimRow.state) == "claimed",
            col(ClaimRow.at) == claim.at,
        )
        .values(at=now, who=holder)
    )
    return bool(taken.rowcount)  # type: ignore[attr-defined]


def complete_period(session: Session, kind: str, period: str, *, holder: str) -> bool:
    """Mark a claimed period as done; False if another replica has completed it or now holds the claim."""
    claim = session.get(ClaimRow, (kind, period), with_for_update=True)
    if claim is None or claim.state == "done" or claim.who != holder:
        return False
    claim.state = "done"
    session.add(claim)
    return True
