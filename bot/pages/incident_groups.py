"""Like incidents together: per cause how many, how many are open, what they cost, and whether they become more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlmodel import col, select

from bot.store.confirmed_fault import UNKNOWN_CAUSE, actually_failed, named_cause
from bot.store.database import Database
from bot.store.incident_state import to_do
from bot.store.tables import IncidentRow
from bot.store.visibility import visible

PARTS = 8  # of the time shown, for the trend
MOST = 8  # groups shown
_LIMIT = 20_000  # incidents looked at


@dataclass(frozen=True, slots=True)
class IncidentGroup:
    """The failures of one cause. `fault`: its class, as people confirmed it where they did; "unknown" for those of unknown cause.

    `trend`: their number in each of `PARTS` equal parts of the time shown, the oldest first. `gpu_hours`: None if no incident knows its cost.
    """

    fault: str
    count: int
    open: int
    gpu_hours: float | None
    trend: tuple[int, ...]

    @property
    def bars(self) -> Sequence[tuple[int, int]]:
        """The place and height of each bar of the trend, in a picture of 8 by 16."""
        most = max(self.trend) or 1
        return [(place, -(-16 * count // most)) for place, count in enumerate(self.trend)]


def groups(store: Database, tenant: str, weeks: int, now: datetime) -> tuple[IncidentGroup, ...]:
    """Return the groups of a tenant's public failures of the last weeks (0: of all time), the most expensive first.

    Raises:
        StoreError: the store cannot be read.
    """
    row = IncidentRow
    asked = [
        col(row.tenant) == tenant,
        visible(),
        actually_failed(),
        col(row.merged_into).is_(None),
        *([col(row.created_at) >= now - timedelta(weeks=weeks)] if weeks else []),
    ]
    query = select(named_cause(), row.created_at, row.gpu_hours_lost).where(*asked).limit(_LIMIT)
    with store.errors(), store.session() as session:
        rows = session.exec(query.order_by(col(row.created_at).desc())).all()
        unsettled = session.exec(select(named_cause()).where(*asked, to_do(now)).limit(_LIMIT)).all()
    begin = now - timedelta(weeks=weeks) if weeks else min((at for _, at, _ in rows), default=now)
    width = (now - begin) / PARTS or timedelta(seconds=1)
    found = []
    for fault in {fault for fault, _, _ in rows}:
        mine = [(at, hours) for name, at, hours in rows if name == fault]
        known = [hours for _, hours in mine if hours is not None]
        trend = [0] * PARTS
        for at, _ in mine:
            trend[min(max(int((at - begin) / width), 0), PARTS - 1)] += 1
        found.append(
            IncidentGroup(fault, len(mine), unsettled.count(fault), sum(known) if known else None, tuple(trend))
        )
    return tuple(sorted(found, key=lambda group: (-(group.gpu_hours or 0.0), -group.count, group.fault)))


def neighbours(store: Database, tenant: str, incident: int) -> tuple[int | None, int | None]:
    """Return the numbers of the tenant's public incidents before and after one; None at either end.

    Raises:
        StoreError: the store cannot be read.
    """
    number = col(IncidentRow.id)
    mine = select(IncidentRow.id).where(col(IncidentRow.tenant) == tenant, visible())
    with store.errors(), store.session() as session:
        older = session.exec(mine.where(number < incident).order_by(number.desc()).limit(1)).first()
        newer = session.exec(mine.where(number > incident).order_by(number).limit(1)).first()
    return older, newer


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group as displayed: its title, and the URL of the list of its incidents."""

    group: IncidentGroup
    title: str
    address: str


def group_rows(
    found: Sequence[IncidentGroup], title: Callable[[str], str], list_of: Callable[[str], str]
) -> list[GroupRow]:
    """Return the groups that are shown. `title`: of a fault class; `list_of`: the URL of a filter by class."""
    return [
        GroupRow(group, "Unknown cause" if group.fault == UNKNOWN_CAUSE else title(group.fault), list_of(group.fault))
        for group in found[:MOST]
    ]
