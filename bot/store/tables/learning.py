"""Tables of what is learned from feedback: the fault library, shadow rules, rule drafts and rule proposals."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Index
from sqlmodel import Field, SQLModel

from bot.store.tables.columns import MaskedText, UtcDateTime


class ShadowHitRow(SQLModel, table=True):
    """A match of a rule in status shadow on a live incident: counted, but not shown (bot.learning.replay.shadow).

    `version` and `meaning` (kb.rulebase.codec) are those of the rule at that time. `leads`: its `fault` would have
    been the first answer.
    """

    __tablename__ = "shadow_hit"
    __table_args__ = (Index("shadow_hit_rule", "rule", "meaning"),)

    incident_id: int = Field(primary_key=True, foreign_key="incident.id")
    rule: str = Field(primary_key=True, max_length=128)
    tenant: str = Field(max_length=64)
    version: int
    meaning: str = Field(max_length=64)
    fault: str = Field(max_length=128)
    leads: bool


class LookedRow(SQLModel, table=True):
    """A review of a rule that was often wrong: earlier feedback on it no longer counts."""

    __tablename__ = "looked"

    tenant: str = Field(primary_key=True, max_length=64)
    rule: str = Field(primary_key=True, max_length=128)
    at: datetime = Field(sa_type=UtcDateTime)
    who: str = Field(sa_type=MaskedText)


class DraftRow(SQLModel, table=True):
    """A rule drafted with a person, from the form to the proposal (bot.learning.drafts.store).

    `handle`: identifies the form of the draft.

    `parent`: the message whose thread it belongs to. `state`: asked, drafted, refused, proposed. `version` is raised by every
    request; `wish`: the last request (JSON). `content_zstd`: the draft with its backtest (JSON, compressed).
    """

    __tablename__ = "draft"

    handle: str = Field(primary_key=True, max_length=64)
    tenant: str = Field(max_length=64)
    incident_id: int = Field(foreign_key="incident.id", index=True)
    who: str = Field(max_length=128)
    channel: str
    parent: int | None = None
    state: str = "asked"
    version: int = 1
    wish: str = Field(default="{}", sa_type=MaskedText)
    content_zstd: bytes | None = None
    at: datetime = Field(sa_type=UtcDateTime, index=True)


class ProposalRow(SQLModel, table=True):
    """A rule proposed to the owners of the rules (bot.learning.proposals.store).

    `key`: fingerprint of its patterns; a closed proposal is not proposed again.

    `state`: asked, open, merged, closed, failed. `version` is raised by every change of the proposal; `sent` is the
    version on the forge, `commented` the last version that was only commented, because a person works on the branch.
    `content_zstd`: files, title and backtest (JSON, compressed). `head`: our newest commit; `etag`: of the last
    response. `posting_id`: the message about it. `opened_at`: since when it counts against the limits; `ready_at`:
    when it may be opened at the earliest. `error`: why it waits or failed.
    """

    __tablename__ = "proposal"

    id: int | None = Field(default=None, primary_key=True)
    key: str = Field(unique=True, max_length=200)
    tenant: str
    rule: str = Field(index=True)
    incident_id: int | None = Field(default=None, index=True)
    who: str = Field(sa_type=MaskedText)
    state: str = Field(default="asked", index=True)
    draft: bool = True
    version: int = 1
    sent: int | None = None
    commented: int | None = None
    forge: str | None = None
    branch: str
    number: int | None = None
    url: str | None = None
    head: str | None = None
    etag: str | None = None
    content_zstd: bytes
    posting_id: int | None = None
    created_at: datetime = Field(sa_type=UtcDateTime)
    opened_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    looked_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    ended_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    ready_at: datetime = Field(sa_type=UtcDateTime)
    tries: int = 0
    error: str | None = Field(default=None, sa_type=MaskedText)


class PatternRow(SQLModel, table=True):
    """An entry of the fault library.

    The signature of a failure with a confirmed cause. `events_zstd`: JSON, kb.precedents.signature.

    `version`: the template miner's version. `closed_as`: the cause in words; `helped`: the fix.
    """

    __tablename__ = "pattern"
    __table_args__ = (Index("pattern_tenant_time", "tenant", "at"),)

    incident_id: int = Field(primary_key=True, foreign_key="incident.id")
    tenant: str = Field(max_length=64)
    at: datetime = Field(sa_type=UtcDateTime)
    version: int
    fault: str | None = None
    rule: str | None = None
    closed_as: str = Field(sa_type=MaskedText)
    helped: str = Field(sa_type=MaskedText)
    events_zstd: bytes
