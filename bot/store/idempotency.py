"""Idempotency keys of inbound events: Slack deliveries, ends of jobs."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, datetime

from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError
from sqlmodel import Session, col, select

from bot.store.database import Repository
from bot.store.tables import SeenRow

KEPT_DAYS = 7  # age at which a key is forgotten (bot.retention.rows)
_MANY = 500  # keys per query: SQLite accepts 999 values


class IdempotencyKeys(Repository):
    """The idempotency keys in one database."""

    def known(self, keys: Iterable[str]) -> frozenset[str]:
        """Return the keys that were added before."""
        asked = list(keys)
        found: set[str] = set()
        with self.database.errors(), self.database.session() as session:
            for start in range(0, len(asked), _MANY):
                part = asked[start : start + _MANY]
                found.update(session.exec(select(SeenRow.key).where(col(SeenRow.key).in_(part))))
        return frozenset(found)

    def add(self, keys: Collection[str]) -> None:
        """Add keys. A key that already exists gets a new time."""
        now = datetime.now(UTC)
        rows = [
            {"key": key, "at": now} for key in sorted(set(keys))
        ]  # always in the same order, so that two writers never deadlock
        with self.database.errors(), self.database.session(write=True) as session:
            insert = sqlite.insert if session.get_bind().dialect.name == "sqlite" else postgresql.insert
            change = insert(SeenRow).on_conflict_do_update(index_elements=["key"], set_={"at": now})
            if rows:
                session.execute(change, rows)


def add_if_new(session: Session, key: str, now: datetime) -> bool:
    """Add a key in a write transaction. Return whether it is new."""
    if session.get(SeenRow, key) is not None:
        return False
    try:
        with session.begin_nested():
            session.add(SeenRow(key=key, at=now))
            session.flush()
    except IntegrityError:
        return False
    return True
