"""The table of node exclusions."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Index, text
from sqlmodel import Field, SQLModel

from bot.store.tables.columns import MaskedText, UtcDateTime

BAR_OPEN = "state IN ('proposed', 'barred')"


class BarRow(SQLModel, table=True):
    """A node that is excluded or proposed for exclusion.

    At most one row per `key` (tenant, cluster, node, scope, job) is open.

    `state`: proposed by a diagnosis; barred (excluded), refused, lifted by people. `scope`: cluster, or job with its `job`.
    `since`: when it was proposed or excluded; `until`: when it expires; `who`: a diagnosis or a person; `decided_by`:
    who confirmed, refused or lifted it, at `decided_at`. `version`: raised by every change, for optimistic locking.
    """

    __tablename__ = "bar"
    __table_args__ = (
        Index("bar_open_key", "key", unique=True, sqlite_where=text(BAR_OPEN), postgresql_where=text(BAR_OPEN)),
        Index("bar_tenant_state", "tenant", "state", "since"),
    )

    id: int | None = Field(default=None, primary_key=True)
    key: str = Field(max_length=128)
    tenant: str = Field(max_length=64)
    cluster: str = Field(sa_type=MaskedText)
    node: str = Field(sa_type=MaskedText)
    scope: str
    job: str = Field(sa_type=MaskedText)
    state: str
    since: datetime = Field(sa_type=UtcDateTime)
    until: datetime | None = Field(default=None, sa_type=UtcDateTime)
    who: str = Field(sa_type=MaskedText)
    why: str = Field(sa_type=MaskedText)
    incident_id: int | None = Field(default=None, index=True)
    decided_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    decided_by: str | None = Field(default=None, sa_type=MaskedText)
    version: int = 1
