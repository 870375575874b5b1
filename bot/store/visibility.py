"""Who sees which incidents, as a condition on the table. The decision itself is `bot.policy.permissions.may_see`."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import ColumnElement, or_, true
from sqlmodel import col

from bot.policy.permissions import may_see
from bot.store.tables import IncidentRow


@dataclass(frozen=True, slots=True)
class Viewer:
    """The person for whom incidents are read. `user`: also sees their own private incidents; `everything`: sees all private incidents."""

    user: str | None = None
    everything: bool = False

    def sees(self, private_to: str | None) -> bool:
        """Whether an incident that is private to this person is visible."""
        return may_see(private_to, self.user, all_private=self.everything)


PUBLIC = Viewer()
OPERATOR = Viewer(everything=True)  # anyone who runs commands on the database can read it anyway


def visible(viewer: Viewer = PUBLIC) -> ColumnElement[bool]:
    """Condition for rows that the viewer sees."""
    if viewer.everything:
        return true()
    private_to = col(IncidentRow.private_to)
    return private_to.is_(None) if viewer.user is None else or_(private_to.is_(None), private_to == viewer.user)
