"""Recognises a run that is diagnosed again, so that its incident is updated and its failure counts once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from sqlmodel import Session, col, select

from bot.store.packed_reports import PackedReport
from bot.store.tables import IncidentRow, KeptRow, ReplayRow, ReportRow

# What a later report may lack without denying it: the same run may be read from its scheduler first, and then from files
_FACTS = frozenset(
    [
        "job_id",
        "job_name",
        "bundle",
        "source",
        "cluster",
        "owner",
        "gpus",
        "gpu_hours_lost",
        "ended_at",
        "attempt",
        "width",
        "saving",
        "partition",
        "framework",
        "image",
    ]
)
_KEPT = frozenset({"created_at", "backfilled"})


def incident_of_run(session: Session, row: Mapping[str, Any]) -> IncidentRow | None:
    """The latest incident of the run that a new row is about; None if there is none.

    The run is the same if its logs are, unless the job or the attempt is another. Of two runs without a job id that print the
    same text, only times in it or the path tell that they are one.
    """
    if not row.get("logs"):
        return None
    query = select(IncidentRow).where(
        col(IncidentRow.logs) == row["logs"],
        col(IncidentRow.tenant) == row["tenant"],
        col(IncidentRow.private_to).is_(None) if row["private_to"] is None else col(IncidentRow.private_to) == row["private_to"],
    )  # fmt: skip
    rows = session.exec(query.order_by(col(IncidentRow.merged_into).is_not(None), col(IncidentRow.id).desc()))
    return next((known for known in rows if _same(known, row)), None)


def update(session: Session, known: IncidentRow, filed: PackedReport) -> None:
    """Replace the report of an incident, with its text and attachments; what people said and did about it stays."""
    for name, value in filed.row.items():
        if name not in _KEPT and not (value is None and name in _FACTS):
            setattr(known, name, value)
    session.add(known)
    session.merge(ReportRow(incident_id=known.id or 0, json_zstd=filed.json_zstd))
    session.merge(ReplayRow(incident_id=known.id or 0, text_zstd=filed.text_zstd, size=filed.size, cut=filed.cut))
    for name, data in filed.kept.items():
        session.merge(KeptRow(incident_id=known.id or 0, name=name, data_zstd=data))
    for kept in session.exec(select(KeptRow).where(col(KeptRow.incident_id) == known.id)).all():
        if kept.name not in filed.kept:
            session.delete(kept)
    session.flush()


def _same(known: IncidentRow, row: Mapping[str, Any]) -> bool:
    for mine, other in ((known.job_id, row["job_id"]), (known.attempt, row["attempt"])):
        if None not in (mine, other) and mine != other:
            return False
    if known.job_id is not None and known.job_id == row["job_id"]:
        return True
    timed = known.ended_at is not None and row["ended_at"] is not None
    return timed or _place(known.bundle or known.source) == _place(row["bundle"] or row["source"])


def _place(path: str | None) -> str | None:
    """The path of the evidence: the same for a bundle and for its folder of logs."""
    if path is None:
        return None
    place = PurePath(path)
    return str(place.parent if place.name == "logs" else place)
