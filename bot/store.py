"""What Signalbox remembers of its answers: incidents, their reports and the text to try later rules on.

One set of tables for SQLite and other databases. Slow to import (SQLAlchemy), so it is imported after the answer is
printed. A store that cannot be used raises `StoreError`, whose text is one line; `remember` hands it back instead.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import zstandard
from sqlalchemy import Connection, DateTime, Dialect, Engine, Table, TypeDecorator, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlmodel import Field, Session, SQLModel, col, create_engine, select

from bot.reportjson import dumps
from bot.settings import database_url
from kb.errors import SignalboxError
from kb.report import Report

SCHEMA_VERSION = 1  # of the tables; a later one brings its migrations
REPLAY_BYTES = 256 * 1024  # kept of the text of an incident, before compression
_BUSY_SECONDS = 5.0


class StoreError(SignalboxError):
    """The store cannot be read or written. The text is one line and says which store."""


# --- tables ----------------------------------------------------------------------------------------------------------


class UtcDateTime(TypeDecorator[datetime]):
    """A time with a zone, kept as UTC without one, and given back with UTC: the same on every database."""

    impl = DateTime
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """What the database gets: UTC without a zone."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a time without a zone")
        return value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """What the program gets: UTC, and says so."""
        return None if value is None else value.replace(tzinfo=UTC)


class SchemaVersion(SQLModel, table=True):
    """One row: which version of the tables this database has."""

    __tablename__ = "schema_version"

    id: int = Field(default=1, primary_key=True)
    version: int


class IncidentRow(SQLModel, table=True):
    """A report that was given, by what people look for."""

    __tablename__ = "incident"

    id: int | None = Field(default=None, primary_key=True)
    created_at: datetime = Field(sa_type=UtcDateTime, index=True)
    report_id: str = Field(unique=True, max_length=128)
    fingerprint: str = Field(index=True)
    rulebook_digest: str
    job_id: str | None = Field(default=None, index=True)
    job_name: str | None = None
    bundle: str | None = None
    verdict: str
    phase: str
    fault: str | None = Field(default=None, index=True)
    rule: str | None = None
    summary: str


class ReportRow(SQLModel, table=True):
    """The report of an incident, as compressed JSON."""

    __tablename__ = "report"

    incident_id: int = Field(primary_key=True, foreign_key="incident.id")
    json_zstd: bytes


class ReplayRow(SQLModel, table=True):
    """The text of an incident on which later rules are tried, compressed; `size` is what it was before it was cut."""

    __tablename__ = "replay"

    incident_id: int = Field(primary_key=True, foreign_key="incident.id")
    text_zstd: bytes
    size: int
    cut: bool


_TABLES: tuple[Table, ...] = tuple(
    SQLModel.metadata.tables[name] for name in ("schema_version", "incident", "report", "replay")
)


# --- values ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Incident:
    """A report that was given, in short. `fault` and `rule` are those of the first diagnosis."""

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


@dataclass(frozen=True, slots=True)
class Record:
    """All that is kept of an incident. `replay_size` is the bytes that the text had; `replay_cut`: less was kept."""

    incident: Incident
    report_json: bytes
    replay: bytes
    replay_size: int
    replay_cut: bool


# --- the store -------------------------------------------------------------------------------------------------------


class Store:
    """The incidents in one database. Close it, or use it in a `with`."""

    def __init__(self, url: str) -> None:
        """Open the database and make its tables where they are missing.

        Raises:
            StoreError: it cannot be opened or written, or a newer Signalbox made it.
        """
        self._engine: Engine | None = None
        self._name = url
        with self._errors():
            parsed = make_url(url)
            self._name = parsed.database or parsed.render_as_string(hide_password=True)
            self._engine = _engine(url)
            try:
                self._prepare()
            except BaseException:
                self.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        if self._engine is not None:
            self._engine.dispose()

    def add(self, report_json: bytes, report: Report, replay: bytes, bundle: str | None, now: datetime) -> int:
        """Keep a report and give the incident's id. A report that is there already keeps its first id and time.

        `now` needs a zone. Of `replay`, whole lines up to 256 KB are kept.
        """
        with self._errors():
            known = self._id_of(report.id)
            if known is not None:
                return known
            try:
                with self._session(write=True) as session:
                    return _inserted(session, _row(report, bundle, now), report_json, replay)
            except IntegrityError:  # another process was faster
                known = self._id_of(report.id)
                if known is None:
                    raise
                return known

    def list(self, limit: int = 20, since: datetime | None = None) -> tuple[Incident, ...]:
        """The latest incidents, the newest first; `since` leaves out those before it."""
        query = select(IncidentRow).order_by(col(IncidentRow.created_at).desc(), col(IncidentRow.id).desc())
        if since is not None:
            query = query.where(col(IncidentRow.created_at) >= since)
        with self._errors(), self._session() as session:
            return tuple(_incident(row) for row in session.exec(query.limit(max(limit, 0))))

    def get(self, incident_id: int) -> Record | None:
        """All that is kept of one incident; None where there is none of that id."""
        if not 0 < incident_id < 2**63:
            return None
        with self._errors(), self._session() as session:
            row = session.get(IncidentRow, incident_id)
            report = session.get(ReportRow, incident_id)
            replay = session.get(ReplayRow, incident_id)
            if row is None or report is None or replay is None:
                return None
            return Record(
                incident=_incident(row),
                report_json=_unpacked(report.json_zstd),
                replay=_unpacked(replay.text_zstd),
                replay_size=replay.size,
                replay_cut=replay.cut,
            )

    def _id_of(self, report_id: str) -> int | None:
        with self._session() as session:
            return session.exec(select(IncidentRow.id).where(IncidentRow.report_id == report_id)).first()

    def _prepare(self) -> None:
        with self._session() as session:
            if _version(session.connection()) == SCHEMA_VERSION:
                return
        with self._session(write=True) as session:
            connection = session.connection()
            found = _version(connection)
            if found is None:
                SQLModel.metadata.create_all(connection, tables=list(_TABLES))
                session.add(SchemaVersion(version=SCHEMA_VERSION))
            elif found != SCHEMA_VERSION:
                raise StoreError(
                    f"{self._name} has tables of version {found}; this Signalbox knows version {SCHEMA_VERSION}"
                )

    @contextlib.contextmanager
    def _session(self, *, write: bool = False) -> Iterator[Session]:
        """A transaction: kept at the end, rolled back on an error."""
        if self._engine is None:
            raise StoreError(f"{self._name} is not open")
        with Session(self._engine.execution_options(signalbox_write=write)) as session, session.begin():
            yield session

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Whatever the database or the file system says, as one line that names the store."""
        try:
            yield
        except (SQLAlchemyError, OSError, ImportError, ValueError, zstandard.ZstdError) as error:
            reason = str(getattr(error, "orig", None) or error).splitlines() or [type(error).__name__]
            raise StoreError(f"{self._name} cannot be used: {reason[0]}") from error


def remember(
    report: Report, replay: bytes, bundle: str | None, *, url: str | None = None, now: datetime | None = None
) -> str | None:
    """Keep a report in the store of this user; a one-line warning where that cannot be done, None where it was.

    The answer stands printed already, so nothing here is an error. `now` is the present unless given.
    """
    try:
        with Store(url or database_url()) as store:
            store.add(dumps(report), report, replay, bundle, now or datetime.now(UTC))
    except (StoreError, OSError, RuntimeError) as error:  # RuntimeError: no home folder
        return f"this report is not kept among the incidents: {error}"
    return None


# --- rows ------------------------------------------------------------------------------------------------------------


def _inserted(session: Session, row: IncidentRow, report_json: bytes, replay: bytes) -> int:
    session.add(row)
    session.flush()
    if row.id is None:  # pragma: no cover - a flush gives an id
        raise StoreError("the database gave no id")
    kept = _whole_lines(replay, REPLAY_BYTES)
    session.add(ReportRow(incident_id=row.id, json_zstd=_packed(report_json)))
    session.add(ReplayRow(incident_id=row.id, text_zstd=_packed(kept), size=len(replay), cut=len(kept) < len(replay)))
    return row.id


def _row(report: Report, bundle: str | None, now: datetime) -> IncidentRow:
    first = report.diagnoses[0] if report.diagnoses else None
    return IncidentRow(
        created_at=now,
        report_id=report.id,
        fingerprint=report.fingerprint,
        rulebook_digest=report.versions.digest,
        job_id=_storable(report.job.id),
        job_name=_storable(report.job.name),
        bundle=_storable(bundle),
        verdict=report.verdict,
        phase=report.phase,
        fault=first.fault if first else None,
        rule=first.rule if first else None,
        summary=_storable(report.summary) or "",
    )


def _storable(text: str | None) -> str | None:
    """Text that every database takes: no lone surrogates (file names have them), no NUL."""
    return None if text is None else text.encode("utf-8", "replace").decode().replace("\0", "?")


def _incident(row: IncidentRow) -> Incident:
    return Incident(**{name: getattr(row, name) for name in Incident.__dataclass_fields__})


def _whole_lines(text: bytes, limit: int) -> bytes:
    """At most `limit` bytes from the start, to the end of a line; in the midst of one where it is longer than that."""
    if len(text) <= limit:
        return text
    end = text.rfind(b"\n", 0, limit) + 1
    return text[: end or limit]


def _packed(data: bytes) -> bytes:
    return zstandard.compress(data, 9)


def _unpacked(data: bytes) -> bytes:
    return zstandard.decompress(data)


# --- the database ----------------------------------------------------------------------------------------------------


def _version(connection: Connection) -> int | None:
    """The version of the tables; None where there are none."""
    if not connection.dialect.has_table(connection, "schema_version"):
        return None
    found: Sequence[Any] = connection.execute(select(SchemaVersion.version)).all()
    return int(found[0][0]) if found else None


def _engine(url: str) -> Engine:
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite":
        return create_engine(parsed)
    if parsed.database and parsed.database != ":memory:":
        _private_file(Path(parsed.database))
    engine = create_engine(parsed, connect_args={"timeout": _BUSY_SECONDS})
    event.listen(engine, "connect", _on_connect)
    event.listen(engine, "begin", _on_begin)
    return engine


def _private_file(path: Path) -> None:
    """The database's file and folder, for this user alone: it holds lines of logs."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not path.exists():
        path.touch(mode=0o600)


def _on_connect(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # transactions begin where `_on_begin` says, and hold the making of tables too
    cursor = connection.cursor()
    try:
        cursor.execute(f"PRAGMA busy_timeout = {int(_BUSY_SECONDS * 1000)}")
        cursor.execute("PRAGMA foreign_keys = ON")
        # A file system without shared memory, a folder that is read only, or another who is just switching: the
        # journal stays as it is, and the store works all the same.
        with contextlib.suppress(sqlite3.OperationalError):
            cursor.execute("PRAGMA journal_mode = WAL").fetchall()
    finally:
        cursor.close()


def _on_begin(connection: Connection) -> None:
    # A writer takes its lock at once: one that reads first and writes later can be refused without waiting.
    write = connection.get_execution_options().get("signalbox_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")
