"""The fault and the nodes of an incident as people confirmed them, in SQL, so that lists and counts agree with its page."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, case, false, func, null, or_, true
from sqlmodel import col, select

from bot.store.tables import AnnotationRow, IncidentRow
from kb.model import NOT_FAILED

UNKNOWN_CAUSE = "unknown"  # in place of a class, for failures of unknown cause


def actual_fault() -> ColumnElement[Any]:
    """The fault class of the last valid close-out, NULL if it names none or says that nothing failed; without a close-out, the diagnosed one.

    Feedback from before an incident was reopened is not valid. An incident that is not closed costs no lookup.
    """
    diagnosed = col(IncidentRow.fault)
    said = _last(AnnotationRow.cause)
    return case(
        (col(IncidentRow.closed_at).is_(None), diagnosed),
        (said.in_(("no_rule", "no_failure", "unknown")), null()),
        (said.in_(("shown", "fault")), func.coalesce(_last(AnnotationRow.fault), diagnosed)),
        else_=diagnosed,
    )


def named_cause() -> ColumnElement[Any]:
    """The class as `actual_fault`; "unknown" for a failure of unknown cause, NULL only for what did not fail."""
    return func.coalesce(actual_fault(), case((actually_failed(), UNKNOWN_CAUSE)))


def has_cause(fault: str) -> ColumnElement[bool]:
    """Whether an incident is of this class; `unknown` (`none` in older scripts) means failures of unknown cause."""
    return named_cause() == (UNKNOWN_CAUSE if fault == "none" else fault)


def actually_failed() -> ColumnElement[Any]:
    """Whether the run failed: as the last valid close-out says, else by the verdict. That it was cancelled is no failure that was overlooked."""
    by_verdict = col(IncidentRow.verdict).not_in(NOT_FAILED)
    said, fault = _last(AnnotationRow.cause), _last(AnnotationRow.fault)
    return case(
        (col(IncidentRow.closed_at).is_(None), by_verdict),
        (said == "no_failure", false()),
        (said == "no_rule", true()),
        ((said == "fault") & fault.is_not(None) & (fault != "cancelled"), true()),
        else_=by_verdict,
    )


def actual_nodes() -> ColumnElement[Any]:
    """The nodes at fault, as JSON: those that the last valid close-out names; else, unless it refutes the answer, the diagnosed ones."""
    said = _last(AnnotationRow.nodes)
    suspects = col(IncidentRow.nodes)
    return case(
        (col(IncidentRow.closed_at).is_(None), suspects),
        (said != "[]", said),
        (_last(AnnotationRow.verdict) == "wrong", "[]"),
        else_=suspects,
    )


def _last(column: Any) -> ColumnElement[Any]:
    """A field of the last valid feedback with a cause; NULL without one."""
    note, reopened = AnnotationRow, col(IncidentRow.reopened_at)
    return (
        select(column)
        .where(
            col(note.incident_id) == col(IncidentRow.id),
            col(note.cause).is_not(None),
            or_(reopened.is_(None), col(note.at) > reopened),
        )
        .order_by(col(note.version).desc())
        .limit(1)
        .correlate(IncidentRow)
        .scalar_subquery()
    )
