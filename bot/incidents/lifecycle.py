"""The life cycle of an incident: acknowledge, assign, snooze, merge, reopen. Closing is in `resolution`.

Each step is an append-only row. The current state is on the incident. A step updates the messages about it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from sqlalchemy import func, update
from sqlmodel import Session, col, or_, select

from bot.incidents.resolution import IncidentNotFound
from bot.notify.messages import refresh_messages
from bot.store.database import Repository, insert_new
from bot.store.incident_state import State, state_of
from bot.store.run_names import run_name
from bot.store.states import PostingState
from bot.store.tables import IncidentRow, PostingRow, StepRow
from bot.store.visibility import visible
from kb.errors import SignalboxError

Verb = Literal["ack", "assign", "snooze", "merge", "reopen"]
LONGEST_SNOOZE = timedelta(days=90)
LONGEST_NAME = 200  # characters of an assignee's name
LONGEST_NOTE = 500
MOST_STEPS = 200  # latest steps shown for one incident


class StepNotAllowed(SignalboxError):  # noqa: N818 - an outcome
    """The step does not apply to the current state. The message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class LifecycleStep:
    """A step by a person. `who`: Slack user id, or login on the command line; `source`: slack, cli.

    `assignee`: for assign, None unassigns; `until`: for snooze, with a time zone; `other`: for merge, the incident to
    merge into.
    """

    verb: Verb
    who: str
    source: str
    assignee: str | None = None
    until: datetime | None = None
    other: int | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """A stored step."""

    incident: int
    at: datetime
    step: LifecycleStep


@dataclass(frozen=True, slots=True)
class MergedIncidents:
    """The incident that this one is merged into, and those merged into it, each with the name of its job."""

    whole: tuple[int, str] | None = None
    parts: tuple[tuple[int, str], ...] = ()


class Lifecycle(Repository):
    """The steps in one database."""

    def step(self, incident: int, tenant: str, key: str, step: LifecycleStep, now: datetime) -> bool:
        """Record a step. Return whether it is new (deliveries of the same click share a `key`).

        Raises:
            IncidentNotFound: it does not exist for this tenant, or the incident to merge into does not.
            StepNotAllowed: the step does not apply to the current state.
        """
        return self.database.write(lambda session: step_within(session, incident, tenant, key=key, step=step, now=now))

    def steps(self, incident: int) -> tuple[RecordedStep, ...]:
        """The last steps of an incident, oldest first, including merges into it."""
        with self.database.errors(), self.database.session() as session:
            return steps_within(session, incident)

    def acknowledged_by(self, incident: int) -> str | None:
        """Who acknowledged the incident last; None if nobody did."""
        with self.database.errors(), self.database.session() as session:
            return acknowledged_by_within(session, incident)

    def family(self, incident: int) -> MergedIncidents:
        """The incidents that it is merged with."""
        with self.database.errors(), self.database.session() as session:
            return family_within(session, incident)


def step_within(session: Session, incident: int, tenant: str, *, key: str, step: LifecycleStep, now: datetime) -> bool:
    """`Lifecycle.step` in a write transaction.

    Raises:
        IncidentNotFound: the tenant has no such incident.
        StepNotAllowed: the incident's state does not permit the step.
    """
    rows = _locked(session, tenant, (incident, step.other) if step.verb == "merge" else (incident,))
    row = rows.get(incident)
    if row is None:
        raise IncidentNotFound(f"there is no incident {incident}")
    if session.exec(select(StepRow.id).where(col(StepRow.key) == key)).first() is not None:
        return False
    touched = _merged(session, row, rows, step, tenant) if step.verb == "merge" else _taken(session, row, step, now)
    values = StepRow(
        incident_id=incident,
        key=key,
        at=now,
        who=_text(step.who, LONGEST_NAME),
        source=step.source,
        verb=step.verb,
        assignee=row.assignee if step.verb in ("ack", "assign") else None,
        until=step.until if step.verb == "snooze" else None,
        other=row.merged_into if step.verb == "merge" else None,
        note=_text(step.note, LONGEST_NOTE),
    ).model_dump(exclude={"id"})
    if insert_new(session, StepRow, values) is None:
        raise StepNotAllowed(
            "somebody else just did the same; check the current state"
        )  # the transaction is rolled back
    session.add(row)
    refresh_messages(session, [incident, *touched])
    return True


def _locked(session: Session, tenant: str, numbers: Sequence[int | None]) -> Mapping[int, IncidentRow]:
    """Rows of this tenant, locked in order of their ids, so that two merges do not deadlock."""
    wanted = [number for number in numbers if number is not None and 0 < number < 2**63]
    query = select(IncidentRow).where(col(IncidentRow.id).in_(wanted), col(IncidentRow.tenant) == tenant)
    rows = session.exec(query.order_by(col(IncidentRow.id)).with_for_update())
    return {row.id: row for row in rows if row.id is not None}


def _taken(session: Session, row: IncidentRow, step: LifecycleStep, now: datetime) -> list[int]:
    """Apply a step other than a merge. Return the other incidents whose messages change."""
    state = state_of(row, now)
    if step.verb == "reopen":
        return _reopened(row, state, now)
    if state in ("closed", "merged"):
        told = "is closed" if state == "closed" else f"is merged into incident {row.merged_into}"
        raise StepNotAllowed(f"incident {row.id} {told}: reopen it first")
    if step.verb == "ack":
        row.acked_at, row.snoozed_until = row.acked_at or now, None
        row.assignee = row.assignee or _text(step.who, LONGEST_NAME)
    elif step.verb == "assign":
        row.assignee = _text(step.assignee, LONGEST_NAME) if step.assignee else None
    else:
        _snoozed(session, row, step.until, now)
    return []


def _reopened(row: IncidentRow, state: State, now: datetime) -> list[int]:
    if state in ("open", "acknowledged"):
        raise StepNotAllowed(f"incident {row.id} is open")
    whole = row.merged_into
    if state != "snoozed":  # this only unsnoozes
        row.acked_at = None
    if row.closed_at is not None:
        row.closed_at, row.reopened_at = None, now
    row.merged_into = row.snoozed_until = None
    return [] if whole is None else [whole]


def _snoozed(session: Session, row: IncidentRow, until: datetime | None, now: datetime) -> None:
    if until is None or until <= now:
        raise StepNotAllowed("the end of the snooze must lie in the future")
    if until > now + LONGEST_SNOOZE:
        raise StepNotAllowed(
            f"an incident can be snoozed for at most {LONGEST_SNOOZE.days} days; close it if nobody is going to look at it"
        )
    row.snoozed_until = until
    session.execute(  # reminders are postponed too
        update(PostingRow)
        .where(
            col(PostingRow.incident_id) == row.id,
            col(PostingRow.state) == PostingState.REMINDER,
            col(PostingRow.sent).is_(None),
            col(PostingRow.ready_at) < until,
        )
        .values(ready_at=until)
    )


def _merged(
    session: Session, row: IncidentRow, rows: Mapping[int, IncidentRow], step: LifecycleStep, tenant: str
) -> list[int]:
    """Merge the incident, and all merged into it, into the other one or into its target."""
    other = rows.get(step.other or 0)
    if other is None or other.private_to != row.private_to:  # the merge target is named wherever its parts are shown
        raise IncidentNotFound(f"there is no incident {step.other} to merge into")
    whole = other.merged_into or other.id
    if whole == row.id:
        message = (
            "an incident cannot be merged into itself"
            if other is row
            else f"incident {other.id} is already merged into it"
        )
        raise StepNotAllowed(message)
    if row.merged_into == whole:
        raise StepNotAllowed(f"incident {row.id} is already merged into incident {whole}")
    left, row.merged_into = row.merged_into, whole
    row.snoozed_until = None
    parts = session.exec(
        select(IncidentRow).where(col(IncidentRow.merged_into) == row.id, col(IncidentRow.tenant) == tenant)
    ).all()
    for part in parts:
        part.merged_into = whole
        session.add(part)
    return [item for item in (whole, other.id, left, *(part.id for part in parts)) if item is not None]


def _text(text: str, most: int) -> str:
    """Text that every database accepts, on one line."""
    return " ".join(text.encode("utf-8", "replace").decode().replace("\0", "?").split())[:most]


# --- past steps ---------------------------------------------------------------------------------------------------


def steps_within(session: Session, incident: int) -> tuple[RecordedStep, ...]:
    """`Lifecycle.steps` in a transaction."""
    rows = session.exec(
        select(StepRow)
        .where(or_(col(StepRow.incident_id) == incident, col(StepRow.other) == incident))
        .order_by(col(StepRow.at).desc(), col(StepRow.id).desc())
        .limit(MOST_STEPS)
    ).all()
    return tuple(_kept(row) for row in reversed(rows))


def acknowledged_by_within(session: Session, incident: int) -> str | None:
    """`Lifecycle.acknowledged_by` in a transaction."""
    return session.exec(
        select(StepRow.who)
        .where(col(StepRow.incident_id) == incident, col(StepRow.verb) == "ack")
        .order_by(col(StepRow.at).desc(), col(StepRow.id).desc())
        .limit(1)
    ).first()


def steps_since(session: Session, tenant: str, since: datetime, most: int) -> tuple[int, tuple[RecordedStep, ...]]:
    """The number of steps in a tenant since a time, and the last of them, newest first; none on private incidents."""
    joined, asked = (
        col(IncidentRow.id) == col(StepRow.incident_id),
        (col(StepRow.at) >= since, col(IncidentRow.tenant) == tenant, visible()),
    )
    count = session.exec(select(func.count(col(StepRow.id))).join(IncidentRow, joined).where(*asked)).one()
    rows = session.exec(
        select(StepRow)
        .join(IncidentRow, joined)
        .where(*asked)
        .order_by(col(StepRow.at).desc(), col(StepRow.id).desc())
        .limit(most)
    )
    return count, tuple(_kept(row) for row in rows)


def family_within(session: Session, incident: int) -> MergedIncidents:
    """`Lifecycle.family` in a transaction."""
    row = session.get(IncidentRow, incident)
    whole = session.get(IncidentRow, row.merged_into) if row is not None and row.merged_into is not None else None
    parts = session.exec(
        select(IncidentRow).where(col(IncidentRow.merged_into) == incident).order_by(col(IncidentRow.id)).limit(100)
    )
    return MergedIncidents(
        None if whole is None else (whole.id or 0, _job(whole)), tuple((part.id or 0, _job(part)) for part in parts)
    )


def _job(row: IncidentRow) -> str:
    return run_name(row)


def _kept(row: StepRow) -> RecordedStep:
    step = LifecycleStep(row.verb, row.who, row.source, row.assignee, row.until, row.other, row.note)  # type: ignore[arg-type]
    return RecordedStep(row.incident_id, row.at, step)


def step_text(taken: RecordedStep, of: int) -> str:
    """A step in words, without the person and the time, from the point of view of incident `of`."""
    step = taken.step
    if step.verb == "merge":
        words = (
            f"merged into incident {step.other}"
            if taken.incident == of
            else f"incident {taken.incident} merged into it"
        )
    elif step.verb == "snooze":
        words = f"snoozed until {step.until:%Y-%m-%d %H:%M}Z" if step.until is not None else "snoozed"
    elif step.verb == "assign":
        words = f"assigned to {step.assignee}" if step.assignee else "unassigned"
    else:
        words = {"ack": "acknowledged", "reopen": "reopened"}[step.verb]
    return f"{words}: {step.note}" if step.note else words
