"""What a button or form stands for: a handle in the chat, the payload here."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlmodel import Session

from bot.notify.messages import new_handle
from bot.store.database import Repository
from bot.store.tables import ChoiceRow


class Choices(Repository):
    """What buttons and forms stand for, in one database."""

    def add_choices(self, tenant: str, payloads: Sequence[str], now: datetime) -> tuple[str, ...]:
        """A handle for each order that a button may give."""
        with self.database.errors(), self.database.session(write=True) as session:
            return add_choices(session, tenant, payloads, now)

    def choice(self, handle: str, tenant: str) -> str | None:
        """The order behind a handle; None where it is not this tenant's, or too old."""
        with self.database.errors(), self.database.session() as session:
            row = session.get(ChoiceRow, handle[:64])
            return row.payload if row is not None and row.tenant == tenant else None

    def any_choice(self, handle: str) -> str | None:
        """What is behind a handle, whoever's it is: for forms, which say from where they were opened."""
        with self.database.errors(), self.database.session() as session:
            row = session.get(ChoiceRow, handle[:64])
            return None if row is None else row.payload


def add_choices(session: Session, tenant: str, payloads: Sequence[str], now: datetime) -> tuple[str, ...]:
    """`Choices.add_choices` in a transaction that writes."""
    handles = tuple(new_handle() for _ in payloads)
    for handle, payload in zip(handles, payloads, strict=True):
        session.add(ChoiceRow(handle=handle, tenant=tenant, payload=payload, created_at=now))
    return handles
