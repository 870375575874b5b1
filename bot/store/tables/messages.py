"""Tables of the chat: messages, requests, buttons, mutes, and who may see what."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Index, text
from sqlmodel import Field, SQLModel

from bot.store.states import OutboxState, PostingState
from bot.store.tables.columns import MaskedText, UtcDateTime

DUE = "sent IS NULL OR sent < version"

WAITING = "state = 'collecting'"


class PostingRow(SQLModel, table=True):
    """A message in Slack that is edited in place. Its text is composed when it is sent.

    `version` is raised by every change of the content; `sent` is the delivered version, 0 for the opening text, None
    before the first delivery. `state`: a PostingState. `facts`: JSON, content beyond the incident. `parent`: the
    message whose thread it belongs to. `lease_until`: a sender has claimed it. `ready_at`: when it may be sent at the earliest.
    `once`: deduplicates deliveries of a request and workers on the same task.
    """

    __tablename__ = "posting"
    __table_args__ = (
        # the sender polls the first five times a second; the second is checked every second for failed tasks
        Index("posting_due", "ready_at", sqlite_where=text(DUE), postgresql_where=text(DUE)),
        Index("posting_waiting", "work_id", sqlite_where=text(WAITING), postgresql_where=text(WAITING)),
    )

    id: int | None = Field(default=None, primary_key=True)
    handle: str = Field(unique=True, max_length=64)
    once: str = Field(unique=True, max_length=200)
    tenant: str
    channel: str = Field(index=True)
    thread_ts: str | None = None
    ts: str | None = None
    parent: int | None = None
    chain: str | None = Field(default=None, index=True)
    work_id: int | None = Field(default=None, index=True)
    incident_id: int | None = Field(default=None, index=True)
    asked_by: str | None = None
    state: str = PostingState.COLLECTING
    facts: str = Field(default="{}", sa_type=MaskedText)
    version: int = 1
    sent: int | None = None
    created_at: datetime = Field(sa_type=UtcDateTime, index=True)
    ready_at: datetime = Field(sa_type=UtcDateTime)
    lease_until: datetime | None = Field(default=None, sa_type=UtcDateTime)
    tries: int = 0
    error: str | None = Field(default=None, sa_type=MaskedText)


class RequestRow(SQLModel, table=True):
    """A request for a diagnosis, and where the answer goes. `key`: the id of the request in Slack.

    `reply_to`: where to send an answer for this person only, valid for half an hour; `posting_id`: the message with
    the answer; `settled`: nothing remains to be sent.
    """

    __tablename__ = "request"
    __table_args__ = (
        Index("request_open", "work_id", sqlite_where=text("settled IS 0"), postgresql_where=text("settled IS false")),
    )

    id: int | None = Field(default=None, primary_key=True)
    key: str = Field(unique=True, max_length=200)
    tenant: str
    work_id: int = Field(index=True)
    channel: str
    thread_ts: str | None = None
    who: str
    private: bool = False
    again: bool = False
    reply_to: str | None = None
    posting_id: int | None = None
    settled: bool = False
    created_at: datetime = Field(sa_type=UtcDateTime)


class OutboxRow(SQLModel, table=True):
    """Something to send once, other than messages. `key`: deduplicates items. `method`: how to send; `payload`: JSON.

    `state`: an OutboxState.
    """

    __tablename__ = "outbox"

    id: int | None = Field(default=None, primary_key=True)
    key: str = Field(unique=True, max_length=200)
    tenant: str
    method: str
    payload: str
    posting_id: int | None = Field(default=None, index=True)
    state: str = Field(default=OutboxState.WAITING, index=True)
    created_at: datetime = Field(sa_type=UtcDateTime)
    ready_at: datetime = Field(sa_type=UtcDateTime)
    lease_until: datetime | None = Field(default=None, sa_type=UtcDateTime)
    tries: int = 0
    error: str | None = Field(default=None, sa_type=MaskedText)


class ChoiceRow(SQLModel, table=True):
    """The meaning of a button that offers one of several options: its opaque handle and its payload (JSON)."""

    __tablename__ = "choice"

    handle: str = Field(primary_key=True, max_length=64)
    tenant: str
    payload: str
    created_at: datetime = Field(sa_type=UtcDateTime, index=True)


class MuteRow(SQLModel, table=True):
    """A mute until a date. `kind`: rule, job, node; `channel`: the only channel it applies to, or None for all."""

    __tablename__ = "mute"

    id: int | None = Field(default=None, primary_key=True)
    key: str = Field(unique=True, max_length=200)
    tenant: str = Field(index=True)
    kind: str
    what: str = Field(sa_type=MaskedText)
    channel: str | None = None
    until: datetime = Field(sa_type=UtcDateTime)
    at: datetime = Field(sa_type=UtcDateTime)
    who: str = Field(sa_type=MaskedText)
    why: str = Field(default="", sa_type=MaskedText)


class FlapRow(SQLModel, table=True):
    """A recurring failure of a chain in a channel; times in seconds since the epoch (bot.policy.notifications.Flap)."""

    __tablename__ = "flap"

    channel: str = Field(primary_key=True, max_length=64)
    chain: str = Field(primary_key=True, max_length=64)
    fingerprint: str = Field(primary_key=True, max_length=128)
    count: int
    said: float
    pause: float
    seen: float


class MembersRow(SQLModel, table=True):
    """People as another system last named them. `members`: JSON, a list of ids or names.

    `group_id`: a Slack user group (S…), a schedule (`pagerduty:…`), or a Slack user whose name it is (`person:U…`).
    """

    __tablename__ = "members"

    group_id: str = Field(primary_key=True, max_length=64)
    members: str
    at: datetime = Field(sa_type=UtcDateTime)


class PresenceRow(SQLModel, table=True):
    """When a person last used Signalbox in a channel, which shows that they belong to its tenant."""

    __tablename__ = "presence"

    who: str = Field(primary_key=True, max_length=64)
    channel: str = Field(primary_key=True, max_length=64)
    at: datetime = Field(sa_type=UtcDateTime, index=True)
