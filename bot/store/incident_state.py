"""The state of an incident, as a value and as a condition on the table."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, Protocol, get_args

from sqlalchemy import ColumnElement, and_, or_
from sqlmodel import col

from bot.store.tables import IncidentRow
from kb.model import NOT_FAILED

State = Literal["open", "acknowledged", "snoozed", "closed", "merged"]
ListedState = Literal["open", "acknowledged", "snoozed", "closed", "merged", "healthy", "unclear"]
LISTED_STATES: tuple[ListedState, ...] = get_args(ListedState)
_OPEN_RUNS = {"healthy": "no_fault", "unclear": "insufficient_evidence"}  # open, and nobody needs to confirm a cause


class HasIncidentState(Protocol):
    """The fields that determine the state, of a row or of an incident."""

    @property
    def acked_at(self) -> datetime | None:
        """When it was acknowledged."""

    @property
    def snoozed_until(self) -> datetime | None:
        """When the snooze ends."""

    @property
    def closed_at(self) -> datetime | None:
        """When it was closed."""

    @property
    def merged_into(self) -> int | None:
        """The incident that it is merged into."""


def state_of(item: HasIncidentState, now: datetime) -> State:
    """The state of an incident. If several apply, return the one that requires the least action."""
    if item.merged_into is not None:
        return "merged"
    if item.closed_at is not None:
        return "closed"
    if item.snoozed_until is not None and item.snoozed_until > now:
        return "snoozed"
    return "open" if item.acked_at is None else "acknowledged"


def in_state(state: State, now: datetime) -> ColumnElement[bool]:
    """Condition for rows in this state, as `state_of` determines it."""
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


def listed_in(state: ListedState, now: datetime) -> list[ColumnElement[bool]]:
    """Conditions for rows that lists show in this state: open ones are failures; the others are healthy or unclear."""
    verdict = col(IncidentRow.verdict)
    match state:
        case "healthy" | "unclear":
            return [in_state("open", now), verdict == _OPEN_RUNS[state]]
        case "open":
            return [in_state(state, now), verdict.not_in(NOT_FAILED)]
        case _:
            return [in_state(state, now)]


def listed_state(item: HasIncidentState, verdict: str, now: datetime) -> ListedState:
    """The state that lists show for an incident with this verdict."""
    state = state_of(item, now)
    found = next((name for name in LISTED_STATES if _OPEN_RUNS.get(name) == verdict), None)
    return found if state == "open" and found is not None else state


def awake(now: datetime) -> ColumnElement[bool]:
    """Condition for rows shown in lists: not merged and not snoozed."""
    until = col(IncidentRow.snoozed_until)
    asleep_no_more = or_(col(IncidentRow.closed_at).is_not(None), until.is_(None), until <= now)
    return and_(col(IncidentRow.merged_into).is_(None), asleep_no_more)


def to_do(now: datetime) -> ColumnElement[bool]:
    """Condition for failures without a confirmed cause: not closed, merged, snoozed or backfilled."""
    until = col(IncidentRow.snoozed_until)
    return and_(
        col(IncidentRow.closed_at).is_(None),
        col(IncidentRow.merged_into).is_(None),
        or_(until.is_(None), until <= now),
        col(IncidentRow.backfilled).is_(False),
        col(IncidentRow.verdict).not_in(NOT_FAILED),
    )
