"""The meaning of buttons and forms: the chat has a handle, the database has the payload."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlmodel import Session

from bot.notify.messages import new_handle
from bot.store.database import Repository
from bot.store.tables import ChoiceRow


class Choices(Repository):
    """Stored choices in one database."""

    def add_choices(self, tenant: str, payloads: Sequence[str], now: datetime) -> tuple[str, ...]:
        """Store payloads; return a handle for each."""
        with self.database.errors(), self.database.session(write=True) as session:
            return add_choices(session, tenant, payloads, now)

    def choice(self, handle: str) -> tuple[str, str] | None:
        """Return the tenant and the payload of a handle; None if it expired."""
        with self.database.errors(), self.database.session() as session:
            row = session.get(ChoiceRow, handle[:64])
            return None if row is None else (row.tenant, row.payload)


def add_choices(session: Session, tenant: str, payloads: Sequence[str], now: datetime) -> tuple[str, ...]:
    """Store payloads within a write transaction; return a handle for each."""
    handles = tuple(new_handle() for _ in payloads)
    for handle, payload in zip(handles, payloads, strict=True):
        session.add(ChoiceRow(handle=handle, tenant=tenant, payload=payload, created_at=now))
    return handles
