"""The fault library: signatures of failures whose cause people confirmed, so that the next one is recognised.

An entry follows the resolution of its incident: it is created, changed and removed with it. Tenants see only their
own entries.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

import msgspec
import zstandard
from sqlmodel import Session, col, or_, select

from bot.render.report_json import from_json
from bot.runtime.redaction import redact
from bot.store.tables import IncidentRow, PatternRow, ReportRow
from bot.store.visibility import PUBLIC, Viewer, visible
from kb.errors import UnreadableInput
from kb.precedents.signature import KnownIncident, Signature, signature_of
from kb.templates.template import VERSION

MOST = 1000  # a run is compared with this many of the newest entries
MOST_BYTES = 64 * 1024  # bytes of one entry, unpacked
LONGEST = 300  # characters of a text by a person


@dataclass(frozen=True, slots=True)
class Lesson:
    """The confirmed cause of an incident.

    `fault`: None if no rule fits; `closed_as`: the cause in words; `helped`: the fix.
    """

    fault: str | None
    rule: str | None
    closed_as: str
    helped: str = ""


def learn_within(session: Session, row: IncidentRow, lesson: Lesson | None, now: datetime) -> None:
    """Update the library entry of an incident to match its resolution; remove it if there is nothing to learn."""
    kept = session.get(PatternRow, row.id)
    pattern = _pattern(session, row) if lesson is not None else None
    if lesson is None or pattern is None or not pattern.events:
        if kept is not None:
            session.delete(kept)
        return
    if kept is None:
        kept = PatternRow(
            incident_id=row.id or 0,
            tenant=row.tenant,
            at=now,
            version=VERSION,
            closed_as="",
            helped="",
            events_zstd=b"",
        )
    kept.at, kept.version = now, VERSION
    kept.fault, kept.rule = lesson.fault, lesson.rule
    kept.closed_as, kept.helped = _safe_line(lesson.closed_as), _safe_line(lesson.helped)
    kept.events_zstd = zstandard.compress(msgspec.json.encode(pattern))
    session.add(kept)


def known_within(session: Session, tenant: str, most: int = MOST, *, viewer: Viewer = PUBLIC) -> list[KnownIncident]:
    """The newest entries of a tenant that the viewer sees, without those of superseded resolutions and merged incidents."""
    holds = or_(col(IncidentRow.reopened_at).is_(None), col(IncidentRow.reopened_at) < col(PatternRow.at))
    rows = session.exec(
        select(PatternRow)
        .join(IncidentRow, col(IncidentRow.id) == col(PatternRow.incident_id))
        .where(col(PatternRow.tenant) == tenant, col(IncidentRow.merged_into).is_(None), holds, visible(viewer))
        .order_by(col(PatternRow.at).desc(), col(PatternRow.incident_id).desc())
        .limit(most)
    )
    found = []
    for row in rows:
        with suppress(zstandard.ZstdError, msgspec.MsgspecError):  # entries written by another version are ignored
            data = zstandard.ZstdDecompressor().decompress(row.events_zstd, max_output_size=MOST_BYTES)
            pattern = msgspec.json.decode(data, type=Signature)
            known = KnownIncident(row.incident_id, pattern, row.fault, row.closed_as, row.helped, row.at.timestamp())
            found.append(known)
    return found


def _pattern(session: Session, row: IncidentRow) -> Signature | None:
    """The signature of the report of an incident; None if the report is no longer stored."""
    report = session.get(ReportRow, row.id)
    if report is None:
        return None
    with suppress(UnreadableInput, zstandard.ZstdError):
        return signature_of(from_json(zstandard.decompress(report.json_zstd)))
    return None


def _safe_line(text: str) -> str:
    """A text by a person, on one line, with bounded length and without secrets."""
    clean = " ".join(redact(text).encode("utf-8", "replace").decode().replace("\0", "?").split())
    return clean if len(clean) <= LONGEST else f"{clean[: LONGEST - 3]}..."
