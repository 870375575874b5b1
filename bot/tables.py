"""All tables, in one place: what is kept of answers, and the work that is still to be done."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import DateTime, Dialect, Index, TypeDecorator, text
from sqlmodel import Field, SQLModel


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


class WorkRow(SQLModel, table=True):
    """Something to be done by a worker, once. Of one `key` at most one row is open (waiting or running).

    `payload`: JSON. `repeats`: how often it was asked for again meanwhile. `tries`: how often a worker has begun it.
    """

    __tablename__ = "work"
    __table_args__ = (
        Index(
            "work_open_key",
            "key",
            unique=True,
            sqlite_where=text("state IN ('waiting', 'running')"),
            postgresql_where=text("state IN ('waiting', 'running')"),
        ),
    )

    id: int | None = Field(default=None, primary_key=True)
    kind: str
    key: str = Field(index=True, max_length=200)
    tenant: str
    payload: str
    state: str = Field(default="waiting", index=True)
    created_at: datetime = Field(sa_type=UtcDateTime)
    asked_at: datetime = Field(sa_type=UtcDateTime)
    beat_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    done_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    worker: str | None = None
    tries: int = 0
    repeats: int = 0
    result: str | None = None
    error: str | None = None
