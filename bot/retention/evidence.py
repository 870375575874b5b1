"""The evidence of an incident: where it is, whether it is pinned, and what eviction must spare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import msgspec
import zstandard
from sqlalchemy import ColumnElement, func
from sqlmodel import col, select

from bot.collection.collect import ProtectedBundles, Spare
from bot.config.settings import Retention
from bot.store.database import Database
from bot.store.tables import AuditRow, IncidentRow, KeptRow, ReportRow

NOTE = "evidence"  # the name of the row that says why an incident's evidence is gone
State = Literal["none", "folder", "packed", "elsewhere", "gone"]


@dataclass(frozen=True, slots=True)
class EvidenceLocation:
    """Where the evidence of an incident is. `words`: as a sentence."""

    state: State
    where: str | None
    words: str


class EvidenceRemoval(msgspec.Struct, frozen=True):
    """Why the evidence was removed, as stored with the incident."""

    at: datetime
    why: str


def spared(store: Database, now: datetime, settings: Retention) -> ProtectedBundles:
    """Bundles that eviction skips because they are pinned, or removes last because they are recent and unresolved."""
    hot = now - timedelta(seconds=settings.hot)
    kept = col(IncidentRow.pinned).is_(True) | (
        col(IncidentRow.closed_at).is_(None) & (col(IncidentRow.created_at) >= hot)
    )
    query = select(IncidentRow.bundle, IncidentRow.pinned).where(col(IncidentRow.bundle).is_not(None), kept)
    with store.errors(), store.session() as session:
        found = [(bundle, pinned) for bundle, pinned in session.exec(query) if bundle is not None]
    return ProtectedBundles(
        frozenset(bundle for bundle, pinned in found if pinned),
        frozenset(bundle for bundle, pinned in found if not pinned),
    )


def sparing(url: str, settings: Retention) -> Spare:
    """A function for `spared` that opens the store only when eviction asks."""

    def ask() -> ProtectedBundles:
        with Database(url) as store:
            return spared(store, datetime.now(UTC), settings)

    return ask


def evidence(store: Database, incident_id: int) -> EvidenceLocation | None:
    """Where the evidence of an incident is; None if the incident does not exist."""
    if not 0 < incident_id < 2**63:
        return None
    with store.errors(), store.session() as session:
        row = session.get(IncidentRow, incident_id)
        note = session.get(KeptRow, (incident_id, NOTE))
        if row is None:
            return None
        gone = msgspec.json.decode(zstandard.decompress(note.data_zstd), type=EvidenceRemoval) if note else None
        return _evidence(row.bundle, row.archive, gone)


def _evidence(bundle: str | None, archive: str | None, gone: EvidenceRemoval | None) -> EvidenceLocation:
    if bundle is not None and Path(bundle).is_dir():
        return EvidenceLocation("folder", bundle, f"its evidence is in {bundle}")
    if archive is not None and Path(archive).is_file():
        return EvidenceLocation("packed", archive, f"its evidence is packed in {archive}")
    if archive is not None:
        return EvidenceLocation(
            "elsewhere", archive, f"its evidence is packed in {archive}, which is not reachable from this host"
        )
    if bundle is None:
        return EvidenceLocation("none", None, "no evidence was kept: it was diagnosed from files given by path")
    if gone is not None:
        return EvidenceLocation("gone", None, f"its evidence was removed on {gone.at:%Y-%m-%d}: {gone.why}")
    return EvidenceLocation("elsewhere", bundle, f"its evidence was in {bundle}, which does not exist on this host")


def pin(store: Database, incident_id: int, now: datetime, who: str, *, pinned: bool = True) -> bool:
    """Pin or unpin an incident. Return whether it exists. Everything of a pinned incident is kept, regardless of age."""
    if not 0 < incident_id < 2**63:
        return False
    with store.errors(), store.session(write=True) as session:
        row = session.get(IncidentRow, incident_id, with_for_update=True)
        if row is None:
            return False
        row.pinned = pinned
        verb = "pin" if pinned else "unpin"
        what = f"incident {incident_id}"
        session.add(
            AuditRow(at=now, tenant=row.tenant, who=who, verb=verb, what=what, allowed=True, why="from the shell")
        )
        return True


def counts(store: Database) -> dict[str, int]:
    """The number of incidents, of open, pinned and packed ones, and of stored reports."""
    parts: Mapping[str, ColumnElement[bool] | None] = {
        "incidents": None,
        "open": col(IncidentRow.closed_at).is_(None),
        "pinned": col(IncidentRow.pinned).is_(True),
        "packed": col(IncidentRow.archive).is_not(None),
    }
    found = {}
    with store.errors(), store.session() as session:
        for name, part in parts.items():
            query = select(func.count()).select_from(IncidentRow)
            found[name] = session.exec(query if part is None else query.where(part)).one()
        found["reports"] = session.exec(select(func.count()).select_from(ReportRow)).one()
    return found
