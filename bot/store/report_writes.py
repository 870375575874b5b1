"""Writes reports into the store, within a transaction: the service one incident per report, a person one per run."""

from __future__ import annotations

from enum import StrEnum

from sqlalchemy.exc import IntegrityError
from sqlmodel import Session, select

from bot.store.database import StoreError
from bot.store.packed_reports import PackedReport
from bot.store.same_run import incident_of_run, update
from bot.store.tables import IncidentRow, KeptRow, ReplayRow, ReportRow


class Stored(StrEnum):
    """What became of a report: a new incident; the incident that holds this report already; or one of the same run.

    An incident of the same run gets the new report, unless people closed it, or it came from a scheduler and the report does not.
    """

    NEW = "new"
    KNOWN = "known"
    UPDATED = "updated"
    CLOSED = "closed"
    FROM_CLUSTER = "from cluster"


def add_within(session: Session, filed: PackedReport) -> int:
    """`IncidentStore.add` in a write transaction. What somebody diagnosed from files of a scheduler's job becomes the incident of that job.

    Raises:
        StoreError: The database gave no id.
    """
    known = stored_incident(session, filed.row["report_id"])
    if known is not None:
        return known
    if filed.row["cluster"] is not None:
        same = incident_of_run(session, filed.row)
        if same is not None and same.id is not None and same.cluster is None and same.closed_at is None:
            update(session, same, filed)
            return same.id
    row = IncidentRow(**filed.row)
    try:
        with session.begin_nested():
            session.add(row)
            session.flush()
    except IntegrityError:  # another process was faster
        known = stored_incident(session, filed.row["report_id"])
        if known is None:
            raise
        return known
    if row.id is None:  # pragma: no cover - a flush gives an id
        raise StoreError("the database gave no id")
    session.add(ReportRow(incident_id=row.id, json_zstd=filed.json_zstd))
    session.add(ReplayRow(incident_id=row.id, text_zstd=filed.text_zstd, size=filed.size, cut=filed.cut))
    for name, data in filed.kept.items():
        session.add(KeptRow(incident_id=row.id, name=name, data_zstd=data))
    return row.id


def put_within(session: Session, filed: PackedReport) -> tuple[int, Stored]:
    """Store a report as one person made it, in a write transaction: an open incident of the same run gets it."""
    known = stored_incident(session, filed.row["report_id"])
    if known is not None:
        return known, Stored.KNOWN
    same = incident_of_run(session, filed.row)
    if same is None or same.id is None:
        return add_within(session, filed), Stored.NEW
    if same.closed_at is not None:
        return same.id, Stored.CLOSED
    if same.cluster is not None and filed.row["cluster"] is None:
        return same.id, Stored.FROM_CLUSTER
    update(session, same, filed)
    return same.id, Stored.UPDATED


def stored_incident(session: Session, report_id: str) -> int | None:
    """The id of the incident that holds a report; None if there is none."""
    return session.exec(select(IncidentRow.id).where(IncidentRow.report_id == report_id)).first()
