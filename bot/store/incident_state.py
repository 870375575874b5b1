"""In which state an incident is: one word for it, and the same word as a condition on the table."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, Protocol, get_args

from sqlalchemy import ColumnElement, and_, or_
from sqlmodel import col

from bot.store.tables import IncidentRow

State = Literal["open", "acknowledged", "snoozed", "closed", "merged"]
STATES: tuple[State, ...] = get_args(State)


class HasIncidentState(Protocol):
    """What tells the state: of a row, or of an incident read from one."""

    @property
    def acked_at(self) -> datetime | None:
        """Since when somebody is at it."""

    @property
    def snoozed_until(self) -> datetime | None:
        """Until when it sleeps."""

    @property
    def closed_at(self) -> datetime | None:
        """Since when somebody has said what it was."""

    @property
    def merged_into(self) -> int | None:
        """The incident as a part of which it counts."""


def state_of(one: HasIncidentState, now: datetime) -> State:
    """The state; of several that could be said the one that leaves least to do."""
    if one.merged_into is not None:
        return "merged"
    if one.closed_at is not None:
        return "closed"
    if one.snoozed_until is not None and one.snoozed_until > now:
        return "snoozed"
    return "open" if one.acked_at is None else "acknowledged"


def in_state(state: State, now: datetime) -> ColumnElement[bool]:
    """Rows of which `state_of` says so."""
    merged, closed = col(IncidentRow.merged_into), col(IncidentRow.closed_at)
    if state == "merged":
        return merged.is_not(None)
    if state == "closed":
        return and_(merged.is_(None), closed.is_not(None))
    until, acked = col(IncidentRow.snoozed_until), col(IncidentRow.acked_at)
    unsaid = and_(closed.is_(None), merged.is_(None))
    if state == "snoozed":
        return and_(unsaid, until > now)
    awake = or_(until.is_(None), until <= now)
    return and_(unsaid, awake, acked.is_(None) if state == "open" else acked.is_not(None))


def awake(now: datetime) -> ColumnElement[bool]:
    """Rows that lists show: neither merged nor asleep."""
    until = col(IncidentRow.snoozed_until)
    asleep_no_more = or_(col(IncidentRow.closed_at).is_not(None), until.is_(None), until <= now)
    return and_(col(IncidentRow.merged_into).is_(None), asleep_no_more)


def to_do(now: datetime) -> ColumnElement[bool]:
    """Rows of failures that wait for a word on what they were: not closed, merged or snoozed, nor found in the past."""
    until = col(IncidentRow.snoozed_until)
    return and_(
        col(IncidentRow.closed_at).is_(None),
        col(IncidentRow.merged_into).is_(None),
        or_(until.is_(None), until <= now),
        col(IncidentRow.backfilled).is_(False),
        col(IncidentRow.verdict) != "no_fault",
    )
