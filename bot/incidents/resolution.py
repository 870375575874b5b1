"""The confirmed cause of an incident.

Append-only feedback, of which the last counts. Disagreement is shown, not overwritten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec
from sqlalchemy import func
from sqlalchemy.exc import IntegrityError
from sqlmodel import Session, col, select

from bot.notify.messages import refresh_messages
from bot.policy.resolution_codes import LONGEST, MOST_NODES, NAMELESS, Cause, Verdict, nameless
from bot.store.confirmed_fault import UNKNOWN_CAUSE
from bot.store.database import Database, Repository
from bot.store.fault_library import Lesson, learn_within
from bot.store.tables import AnnotationRow, IncidentRow
from kb.errors import SignalboxError

_TRIES = 5


class IncidentNotFound(SignalboxError):  # noqa: N818 - an outcome
    """The incident does not exist, or belongs to another tenant."""


@dataclass(frozen=True, slots=True)
class Closing:
    """Feedback of one person. `who`: Slack user id, or login on the command line; `source`: slack, cli.

    `verdict`: whether the answer was correct. `cause`: shown (`fault` and `rule` of a diagnosis in the answer), fault
    (another one), no_rule, no_failure, unknown; None if the person only pressed Wrong. `lost_hours`: wall-clock hours.
    """

    who: str
    source: str
    verdict: Verdict
    cause: Cause | None = None
    fault: str | None = None
    rule: str | None = None
    nodes: tuple[str, ...] = ()
    action: str = ""
    lost_hours: float | None = None
    note: str = ""
    propose_rule: bool = False


@dataclass(frozen=True, slots=True)
class Annotation:
    """Stored feedback. `void`: superseded because the incident was reopened."""

    incident: int
    version: int
    at: datetime
    said: Closing
    void: bool = False


@dataclass(frozen=True, slots=True)
class Resolution:
    """The resolution of an incident: the last feedback with a cause, and the last feedback of each person who disagrees."""

    last: Annotation
    against: tuple[Annotation, ...] = ()


class Closings(Repository):
    """The feedback in one database."""

    def annotate(self, incident: int, tenant: str, key: str, said: Closing, now: datetime) -> bool:
        """Store feedback. Return whether it is new (deliveries of the same click share a `key`).

        Raises:
            IncidentNotFound: it does not exist for this tenant.
        """
        with self.database.errors(), self.database.session(write=True) as session:
            return annotate_within(session, incident, tenant, key=key, said=said, now=now)

    def annotations(self, incident: int) -> tuple[Annotation, ...]:
        """All feedback on an incident, oldest first."""
        with self.database.errors(), self.database.session() as session:
            return annotations_within(session, [incident]).get(incident, ())


def confirmed(database: Database, incidents: Sequence[int]) -> Mapping[int, str]:
    """The confirmed cause of each of these incidents that has one: its fault, that no rule fits, that nothing failed, or "unknown".

    Raises:
        StoreError: the store cannot be read.
    """
    with database.errors(), database.session() as session:
        said = annotations_within(session, incidents)
    last = {number: holds.last.said for number, item in said.items() if (holds := word(item)) is not None}
    return {
        number: UNKNOWN_CAUSE if item.cause == "unknown" else item.fault or nameless(item.cause) or ""
        for number, item in last.items()
    }


def annotate_within(session: Session, incident: int, tenant: str, *, key: str, said: Closing, now: datetime) -> bool:
    """`Closings.annotate` in a write transaction.

    Raises:
        IncidentNotFound: the tenant has no such incident.
        SignalboxError: several people close the incident at once.
    """
    row = session.get(IncidentRow, incident, with_for_update=True) if 0 < incident < 2**63 else None
    if row is None or row.tenant != tenant:
        raise IncidentNotFound(f"there is no incident {incident}")
    for _ in range(_TRIES):
        if session.exec(select(AnnotationRow.id).where(col(AnnotationRow.key) == key)).first() is not None:
            return False
        last = session.exec(
            select(func.max(AnnotationRow.version)).where(col(AnnotationRow.incident_id) == incident)
        ).one()
        try:
            with session.begin_nested():
                session.add(_row(incident, (last or 0) + 1, key, said, now))
                session.flush()
        except IntegrityError:
            continue  # somebody else gave feedback at the same moment
        if said.cause is not None:
            row.closed_at = row.closed_at or now
            session.add(row)
            learn_within(session, row, _lesson(word(annotations_within(session, [incident])[incident])), now)
        refresh_messages(session, [incident])
        return True
    raise SignalboxError("several people are closing this incident right now; try again")


def annotations_within(session: Session, incidents: Sequence[int]) -> Mapping[int, tuple[Annotation, ...]]:
    """All feedback on each incident, oldest first."""
    found: dict[int, tuple[Annotation, ...]] = {}
    rows = session.exec(
        select(AnnotationRow, IncidentRow.reopened_at)
        .join(IncidentRow, col(IncidentRow.id) == col(AnnotationRow.incident_id))
        .where(col(AnnotationRow.incident_id).in_(incidents))
        .order_by(col(AnnotationRow.version))
    )
    for row, reopened in rows:
        void = reopened is not None and row.at <= reopened
        found[row.incident_id] = (*found.get(row.incident_id, ()), _annotation(row, void=void))
    return found


def cause_text(closing: Closing, title: Callable[[str], str]) -> str:
    """Return the cause that a person gave, in words; empty without one. `title`: the words for a fault's class."""
    return nameless(closing.cause) or (title(closing.fault) if closing.fault else "")


def word(said: Iterable[Annotation]) -> Resolution | None:
    """The resolution: the last feedback that names a cause, and the last feedback of each person who names a different one."""
    of_each: dict[str, Annotation] = {}
    for annotation in said:
        if annotation.said.cause is not None and not annotation.void:
            of_each.pop(annotation.said.who, None)
            of_each[annotation.said.who] = annotation  # the most recent feedback comes last
    if not of_each:
        return None
    *others, last = of_each.values()
    return Resolution(last, tuple(other for other in others if _meant(other) != _meant(last)))


def _lesson(holds: Resolution | None) -> Lesson | None:
    """What the fault library learns from the resolution; None while the cause is unknown."""
    if holds is None:
        return None
    closing = holds.last.said
    if closing.cause in ("shown", "fault") and closing.fault is not None:
        return Lesson(closing.fault, closing.rule, closing.fault, closing.action or closing.note)
    if closing.cause == "no_rule":
        return Lesson(None, None, f"{NAMELESS['no_rule']}{f': {closing.note}' if closing.note else ''}", closing.action)
    return None


def _meant(annotation: Annotation) -> tuple[str | None, ...]:
    """The cause in a form for comparing opinions: the same fault counts as the same cause, whether the answer showed it or not."""
    said = annotation.said
    return (said.fault,) if said.cause in ("shown", "fault") else (said.cause, said.fault)


def _row(incident: int, version: int, key: str, closing: Closing, now: datetime) -> AnnotationRow:
    def text(name: str, value: str) -> str:
        return value.encode("utf-8", "replace").decode().replace("\0", "?")[: LONGEST[name]]

    return AnnotationRow(
        incident_id=incident,
        version=version,
        key=key,
        at=now,
        who=text("who", closing.who),
        source=closing.source,
        verdict=closing.verdict,
        cause=closing.cause,
        fault=None if closing.fault is None else text("fault", closing.fault),
        rule=None if closing.rule is None else text("rule", closing.rule),
        nodes=msgspec.json.encode([text("node", node) for node in closing.nodes[:MOST_NODES]]).decode(),
        action=text("action", closing.action),
        lost_hours=closing.lost_hours,
        note=text("note", closing.note),
        propose_rule=closing.propose_rule,
    )


def _annotation(row: AnnotationRow, *, void: bool) -> Annotation:
    closing = Closing(
        who=row.who,
        source=row.source,
        verdict=row.verdict,  # type: ignore[arg-type]
        cause=row.cause,  # type: ignore[arg-type]
        fault=row.fault,
        rule=row.rule,
        nodes=tuple(msgspec.json.decode(row.nodes, type=list[str])),
        action=row.action,
        lost_hours=row.lost_hours,
        note=row.note,
        propose_rule=row.propose_rule,
    )
    return Annotation(row.incident_id, row.version, row.at, closing, void)
