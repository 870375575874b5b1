"""Tables of the service itself: the schema's version, its tasks, schedules and digests, idempotency keys, the audit log."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Index, text
from sqlmodel import Field, SQLModel

from bot.store.states import WorkState
from bot.store.tables.columns import MaskedText, UtcDateTime


class SchemaVersion(SQLModel, table=True):
    """The version of the tables, in a single row."""

    __tablename__ = "schema_version"

    id: int = Field(default=1, primary_key=True)
    version: int


class SeenRow(SQLModel, table=True):
    """An idempotency key of an inbound event: a Slack delivery, the end of a job."""

    __tablename__ = "seen"

    key: str = Field(primary_key=True, max_length=200)
    at: datetime = Field(sa_type=UtcDateTime, index=True)


class AuditRow(SQLModel, table=True):
    """An audit entry: who did what, and whether it was allowed."""

    __tablename__ = "audit"

    id: int | None = Field(default=None, primary_key=True)
    at: datetime = Field(sa_type=UtcDateTime, index=True)
    tenant: str
    who: str = Field(sa_type=MaskedText)
    verb: str
    what: str = Field(sa_type=MaskedText)
    allowed: bool
    why: str = Field(default="", sa_type=MaskedText)


class ClaimRow(SQLModel, table=True):
    """A claimed period in which a scheduled job runs once: ("digest", "2026-W47")."""

    __tablename__ = "claim"

    kind: str = Field(primary_key=True, max_length=64)
    period: str = Field(primary_key=True, max_length=64)
    at: datetime = Field(sa_type=UtcDateTime)
    who: str = Field(sa_type=MaskedText)
    state: str = "claimed"


class DigestRow(SQLModel, table=True):
    """The published numbers of a weekly digest (JSON, compressed). Charts drawn later use the same numbers.

    `error`: the digest failed; the log has details under this id.
    """

    __tablename__ = "digest"

    tenant: str = Field(primary_key=True, max_length=64)
    week: str = Field(primary_key=True, max_length=16)
    at: datetime = Field(sa_type=UtcDateTime)
    numbers_zstd: bytes | None = None
    error: str | None = Field(default=None, sa_type=MaskedText)


class DigestDayRow(SQLModel, table=True):
    """What the digest reads of the reports created on a day (by UTC) that the whole tenant sees, in columns (bot.store.digest_days).

    Triggers delete the row when one of these reports or what people say about them changes.
    `version`: the form of the columns.
    """

    __tablename__ = "digest_day"

    tenant: str = Field(primary_key=True, max_length=64)
    day: str = Field(primary_key=True, max_length=10)
    version: int
    columns_zstd: bytes


class WorkRow(SQLModel, table=True):
    """A task for a worker, done once. At most one row per `key` is open (waiting or running).

    `state`: a WorkState. `payload`: JSON. `repeats`: how often it was requested again in the meantime. `tries`: how
    often a worker started it. `spooled`: JSON, partial results that another worker can reuse.
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
    state: str = Field(default=WorkState.WAITING, index=True)
    created_at: datetime = Field(sa_type=UtcDateTime)
    asked_at: datetime = Field(sa_type=UtcDateTime)
    beat_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    done_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    worker: str | None = None
    tries: int = 0
    repeats: int = 0
    spooled: str | None = None
    result: str | None = Field(default=None, sa_type=MaskedText)
    error: str | None = Field(default=None, sa_type=MaskedText)
