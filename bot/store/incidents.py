"""Stored incidents: their reports, and the log text that later rules are tested on.

The tables are the same for SQLite and PostgreSQL. Importing SQLAlchemy is slow, so this module is imported after the
answer is printed. If the store cannot be used, functions raise `StoreError` with a one-line message; `remember`
returns the message instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import zstandard
from sqlalchemy import ColumnElement, func, or_
from sqlmodel import Session, col, select

from bot.render.report_json import dumps, from_json
from bot.runtime.paths import DEFAULT_TENANT, database_url
from bot.store import unsaved
from bot.store.confirmed_fault import actual_nodes, has_cause
from bot.store.database import Repository, StoreError
from bot.store.incident_state import ListedState, awake, listed_in, to_do
from bot.store.packed_reports import Origin, PackedReport, file
from bot.store.report_writes import Stored, add_within, put_within, stored_incident
from bot.store.suspect_nodes import node_names, suspects
from bot.store.tables import IncidentRow, KeptRow, ReplayRow, ReportRow
from bot.store.visibility import PUBLIC, Viewer, visible
from kb.errors import SignalboxError
from kb.report import Report

_LATEST = 5_000  # incidents whose nodes are looked through for a similar name

# --- values ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Incident:
    """Summary of a stored report. `fault` and `rule` are those of the first diagnosis; `nodes` in a list are those that people named, else its suspects."""

    id: int
    created_at: datetime
    report_id: str
    fingerprint: str
    rulebook_digest: str
    job_id: str | None
    job_name: str | None
    bundle: str | None
    verdict: str
    phase: str
    fault: str | None
    rule: str | None
    summary: str
    tenant: str = DEFAULT_TENANT
    cluster: str | None = None
    chain: str | None = None
    owner: str | None = None
    gpus: int | None = None
    gpu_hours_lost: float | None = None
    ended_at: datetime | None = None
    closed_at: datetime | None = None
    pinned: bool = False
    archive: str | None = None
    acked_at: datetime | None = None
    assignee: str | None = None
    snoozed_until: datetime | None = None
    merged_into: int | None = None
    reopened_at: datetime | None = None
    backfilled: bool = False
    private_to: str | None = None
    source: str | None = None
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class IncidentFilter:
    """Filter for incidents. All conditions that are set must hold.

    `state`: as of `now`; `assignee`: assigned to this person; `fault`: its class, or "unknown" for failures of unknown cause; `node`: the whole
    name of a node at fault, as people closed it, else as diagnosed; `awake`: neither snoozed nor merged; `to_do`: failures
    without a confirmed cause (bot.store.incident_state). `viewer`: for whom; by default, without private incidents.
    """

    tenant: str | None = None
    now: datetime | None = None
    since: datetime | None = None
    state: ListedState | None = None
    assignee: str | None = None
    awake: bool = False
    to_do: bool = False
    viewer: Viewer = PUBLIC
    fault: str | None = None
    node: str | None = None

    def conditions(self) -> list[ColumnElement[bool]]:
        """The filter as conditions on the table."""
        now = self.now or datetime.now(UTC)
        found: list[ColumnElement[bool]] = [visible(self.viewer)]
        if self.tenant is not None:
            found.append(col(IncidentRow.tenant) == self.tenant)
        if self.since is not None:
            found.append(col(IncidentRow.created_at) >= self.since)
        if self.state is not None:
            found += listed_in(self.state, now)
        if self.assignee is not None:
            found.append(col(IncidentRow.assignee) == self.assignee)
        found += self._blamed()
        if self.awake:
            found.append(awake(now))
        if self.to_do:
            found.append(to_do(now))
        return found

    def _blamed(self) -> list[ColumnElement[bool]]:
        """The conditions on the cause and the suspects."""
        found: list[ColumnElement[bool]] = [] if self.node is None else [suspects(self.node)]
        return found if self.fault is None else [*found, has_cause(self.fault)]


EVERYTHING = IncidentFilter()


@dataclass(frozen=True, slots=True)
class ReportedIncident:
    """An incident with its report."""

    incident: Incident
    report_json: bytes


@dataclass(frozen=True, slots=True)
class IncidentRecord(ReportedIncident):
    """Everything stored of an incident. `replay_size`: bytes of the original text; `replay_cut`: whether it was cut."""

    replay: bytes
    replay_size: int
    replay_cut: bool


# --- the store -------------------------------------------------------------------------------------------------------


class IncidentStore(Repository):
    """The incidents in one database."""

    def add(
        self,
        report_json: bytes,
        report: Report,
        replay: bytes,
        bundle: str | None,
        now: datetime,
        *,
        origin: Origin | None = None,
    ) -> int:
        """Store a report and return the id of its incident. A report that is already stored keeps its id and time.

        `now` needs a time zone. Of `replay`, whole lines up to 256 KB are kept.
        """
        filed = file(report_json, report, replay, bundle, now, origin=origin)
        with self.database.errors():
            known = self._id_of(filed.row["report_id"])
        return self.database.write(lambda session: add_within(session, filed)) if known is None else known

    def list(
        self, limit: int = 20, wanted: IncidentFilter = EVERYTHING, *, skip: int = 0, costly: bool = False
    ) -> tuple[Incident, ...]:
        """The matching incidents, newest first. `skip`: how many to skip; `costly`: those with the most GPU-hours to repeat first."""
        query = select(IncidentRow, actual_nodes())
        if costly:
            query = query.order_by(func.coalesce(col(IncidentRow.gpu_hours_lost), -1.0).desc())
        query = query.order_by(col(IncidentRow.created_at).desc(), col(IncidentRow.id).desc())
        query = query.where(*wanted.conditions()).offset(max(skip, 0))
        with self.database.errors(), self.database.session() as session:
            return tuple(_incident(row, nodes) for row, nodes in session.exec(query.limit(max(limit, 0))))

    def answer(self, incident_id: int) -> ReportedIncident | None:
        """An incident with its report. Does not unpack the replay text, which is only needed for tests of rules."""
        if not 0 < incident_id < 2**63:
            return None
        with self.database.errors(), self.database.session() as session:
            row, report = session.get(IncidentRow, incident_id), session.get(ReportRow, incident_id)
            if row is None or report is None:
                return None
            return ReportedIncident(_incident(row), _unpacked(report.json_zstd))

    def get(self, incident_id: int) -> IncidentRecord | None:
        """Everything stored of an incident; None if it does not exist."""
        if not 0 < incident_id < 2**63:
            return None
        with self.database.errors(), self.database.session() as session:
            row = session.get(IncidentRow, incident_id)
            report = session.get(ReportRow, incident_id)
            replay = session.get(ReplayRow, incident_id)
            if row is None or report is None or replay is None:
                return None
            return IncidentRecord(
                incident=_incident(row),
                report_json=_unpacked(report.json_zstd),
                replay=_unpacked(replay.text_zstd),
                replay_size=replay.size,
                replay_cut=replay.cut,
            )

    def chain(self, incident: Incident) -> tuple[int, tuple[tuple[str, int], ...]]:
        """The number of earlier incidents of the same chain, and how often each fault occurred in them."""
        before = (
            select(IncidentRow.fault, func.count())
            .where(
                col(IncidentRow.chain) == incident.chain,
                col(IncidentRow.tenant) == incident.tenant,
                col(IncidentRow.id) < incident.id,
                visible(Viewer(incident.private_to)),
            )
            .group_by(col(IncidentRow.fault))
            .order_by(func.count().desc(), col(IncidentRow.fault))
        )
        with self.database.errors(), self.database.session() as session:
            rows = session.exec(before).all()
        return sum(count for _, count in rows), tuple((fault, count) for fault, count in rows if fault is not None)

    def tried_after(self, incident: Incident) -> int:
        """The number of incidents of the same chain that came after this one."""
        with self.database.errors(), self.database.session() as session:
            return session.exec(
                select(func.count()).where(
                    col(IncidentRow.chain) == incident.chain,
                    col(IncidentRow.tenant) == incident.tenant,
                    col(IncidentRow.id) > incident.id,
                    visible(Viewer(incident.private_to)),
                )
            ).one()

    def count(self, wanted: IncidentFilter = EVERYTHING) -> int:
        """The number of matching incidents."""
        query = select(func.count(col(IncidentRow.id))).where(*wanted.conditions())
        with self.database.errors(), self.database.session() as session:
            return session.exec(query).one()

    def knows_job(self, tenant: str, job: str, viewer: Viewer = PUBLIC) -> bool:
        """Whether the tenant has an incident, visible to this viewer, of a job with exactly this name or id."""
        row = IncidentRow
        query = select(row.id).where(col(row.tenant) == tenant, visible(viewer))
        query = query.where(or_(col(row.job_name) == job, col(row.job_id) == job))
        with self.database.errors(), self.database.session() as session:
            return session.exec(query.limit(1)).first() is not None

    def suspected_nodes(self, viewer: Viewer = PUBLIC) -> frozenset[str]:
        """The names of the nodes that are at fault in the latest incidents."""
        query = select(actual_nodes()).where(visible(viewer))
        with self.database.errors(), self.database.session() as session:
            rows = session.exec(query.order_by(col(IncidentRow.id).desc()).limit(_LATEST)).all()
        return frozenset(name for row in rows for name in node_names(row))

    def kept(self, incident_id: int, name: str) -> bytes | None:
        """An attachment of an incident; None if the incident has none with this name."""
        with self.database.errors(), self.database.session() as session:
            row = session.get(KeptRow, (incident_id, name))
            return None if row is None else _unpacked(row.data_zstd)

    def _id_of(self, report_id: str) -> int | None:
        with self.database.session() as session:
            return stored_incident(session, report_id)


def remember(
    report: Report,
    replay: bytes,
    bundle: str | None,
    *,
    url: str | None = None,
    now: datetime | None = None,
    origin: Origin | None = None,
    within: Callable[[Session, int, Stored], None] | None = None,
    promised: Path | None = None,
) -> str | None:
    """Store a report in the database of this user. Return a one-line warning if that fails, None on success.

    The answer is already printed, so a failure is not an error: a report that the database rejects is saved beside it for the
    next command. `now` defaults to the current time. `within` receives the id of the incident and what became of it, and
    writes more in the same transaction. A run that is diagnosed again keeps its incident (bot.store.same_run). `promised`: the file of bot.store.unsaved.promise, which is removed once the report is stored.
    """
    filed = file(dumps(report), report, replay, bundle, now or datetime.now(UTC), origin=origin)

    def kept(session: Session) -> None:
        number, stored = put_within(session, filed)
        if within is not None:
            within(session, number, stored)

    try:
        url = url or database_url()
    except (OSError, RuntimeError) as error:  # no home folder
        return f"the report was not stored as an incident: {error}"
    try:
        with IncidentStore(url) as store:
            store.database.write(kept)
            _settle(promised)
            with suppress(StoreError, OSError):
                unsaved.take_in(url, partial(_taken_in, store))
    except (StoreError, OSError, RuntimeError) as error:
        try:
            put = unsaved.put(url, msgspec.msgpack.encode(asdict(filed)))
        except OSError:
            return f"the report was not stored as an incident: {error}"
        _settle(promised)
        return f"the report was not stored as an incident: {error}; the next command that can stores it from {put}"
    return None


def _settle(promised: Path | None) -> None:
    """Remove a file whose content has been stored."""
    if promised is not None:
        with suppress(OSError):
            promised.unlink(missing_ok=True)


def _taken_in(store: IncidentStore, packed: bytes) -> bool:
    """Store an incident that was saved beside the database. An unreadable file is left alone.

    Raises:
        StoreError: the store cannot be written.
    """
    try:
        found = msgspec.msgpack.decode(packed)
        filed = _as_put(found) if "row" in found else _as_promised(found)
    except (SignalboxError, msgspec.MsgspecError, AttributeError, KeyError, TypeError, ValueError):
        return False
    store.database.write(lambda session: put_within(session, filed))
    return True


def _as_put(found: Mapping[str, Any]) -> PackedReport:
    """Return an incident that the database rejected."""
    times = {key: value for key in _ROW_TIMES if isinstance(value := found["row"][key], str)}  # times without a zone
    row = {**found["row"], **{key: datetime.fromisoformat(value) for key, value in times.items()}}
    return PackedReport(**{**found, "row": row})


def _as_promised(found: Mapping[str, Any]) -> PackedReport:
    """Return the incident of a command that ended before it stored its answer. It has no attachments."""
    report = from_json(found["report"])
    now = datetime.fromisoformat(found["now"])
    origin = Origin(found["tenant"], found["cluster"], now, logs=found.get("logs", ""), source=found.get("source"))
    return file(found["report"], report, found["replay"], found["bundle"], now, origin=origin)


_ROW_TIMES = ("created_at", "ended_at")


# --- rows ------------------------------------------------------------------------------------------------------------


def _incident(row: IncidentRow, nodes: str | None = None) -> Incident:
    """`nodes`: the actual ones, if they were asked for."""
    same = {name: getattr(row, name) for name in Incident.__dataclass_fields__ if name != "nodes"}
    return Incident(**same, nodes=node_names(row.nodes if nodes is None else nodes))


def _unpacked(data: bytes) -> bytes:
    return zstandard.decompress(data)
