"""All tables, in one place: answers and what people said of them, the work to be done, the messages to be sent.

A change here needs a step in `migrations/versions`; a test compares what the steps give with what stands here.
"""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import DateTime, Dialect, Index, TypeDecorator, text
from sqlmodel import Field, SQLModel

from bot.store.states import OutboxState, PostingState, WorkState


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


BAR_OPEN = "state IN ('proposed', 'barred')"
DUE = "sent IS NULL OR sent < version"
OPEN = "closed_at IS NULL AND merged_into IS NULL"
WAITING = "state = 'collecting'"


class SchemaVersion(SQLModel, table=True):
    """One row: which version of the tables this database has."""

    __tablename__ = "schema_version"

    id: int = Field(default=1, primary_key=True)
    version: int


class IncidentRow(SQLModel, table=True):
    """A report that was given, by what people look for.

    `chain`: the same for the tries of a job, told by `link_job` and `link_name` (bot.policy.routing.Link); `owner`: whose job it was; `closed_at`: since when somebody has said
    what it truly was; `pinned`: its evidence is kept whatever its age; `archive`: where its evidence lies packed. What the digest
    counts: `attempt`; `width`, its nodes; `nodes`, those suspected (JSON); `runs`, its attempts (JSON, kb.digest.rows.AttemptTimes);
    `saving`, seconds spent writing checkpoints; `partition`, `framework`, `image`; whether its `advice` helped: `reached`, the last
    iteration. Its life (bot.incidents.lifecycle; the steps that led here are StepRows): `acked_at`, since when somebody is at it; `assignee`; `snoozed_until`; `merged_into`, the incident as a part of
    which it counts; `reopened_at`: what was said of it before holds no more. `backfilled`: found in the past, told to nobody.
    """

    __tablename__ = "incident"
    __table_args__ = (
        Index("incident_tenant_time", "tenant", "created_at", "fault"),
        Index("incident_open", "tenant", "created_at", sqlite_where=text(OPEN), postgresql_where=text(OPEN)),
    )

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
    tenant: str = Field(default="default", index=True, sa_column_kwargs={"server_default": "default"})
    cluster: str | None = None
    chain: str | None = Field(default=None, index=True)
    link_job: str | None = Field(default=None, index=True)
    link_name: str | None = Field(default=None, index=True)
    owner: str | None = None
    gpus: int | None = None
    gpu_hours_lost: float | None = None
    ended_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    closed_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    pinned: bool = Field(default=False, sa_column_kwargs={"server_default": text("false")})
    archive: str | None = None
    attempt: int | None = None
    width: int | None = None
    nodes: str | None = None
    runs: str | None = None
    saving: float | None = None
    partition: str | None = None
    framework: str | None = None
    image: str | None = None
    advice: str | None = None
    reached: int | None = None
    acked_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    assignee: str | None = None
    snoozed_until: datetime | None = Field(default=None, sa_type=UtcDateTime)
    merged_into: int | None = Field(default=None, index=True)
    reopened_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    backfilled: bool = Field(default=False, sa_column_kwargs={"server_default": text("false")})


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


class KeptRow(SQLModel, table=True):
    """Something small that belongs to an incident, compressed: its timeline."""

    __tablename__ = "kept"

    incident_id: int = Field(primary_key=True, foreign_key="incident.id")
    name: str = Field(primary_key=True, max_length=64)
    data_zstd: bytes


class AnnotationRow(SQLModel, table=True):
    """What a person said of an incident, once; nothing is overwritten. `key`: of two deliveries of one click one is kept.

    `verdict`: whether the bot was right. `cause`: what kind of answer `fault` and `rule` are: shown, fault, no_rule, unknown;
    None where a person only pressed Wrong. `nodes`: JSON. `version` counts from 1 in an incident.
    """

    __tablename__ = "annotation"
    __table_args__ = (Index("annotation_version", "incident_id", "version", unique=True),)

    id: int | None = Field(default=None, primary_key=True)
    incident_id: int = Field(foreign_key="incident.id", index=True)
    version: int
    key: str = Field(unique=True, max_length=200)
    at: datetime = Field(sa_type=UtcDateTime)
    who: str
    source: str
    verdict: str
    cause: str | None = None
    fault: str | None = None
    rule: str | None = None
    nodes: str = "[]"
    action: str = ""
    lost_hours: float | None = None
    note: str = ""
    propose_rule: bool = False


class StepRow(SQLModel, table=True):
    """A step in the life of an incident, once; nothing is overwritten. `key`: of two deliveries of one click one is kept.

    `verb`: ack, assign (`assignee`: to whom, None to nobody), snooze (`until`), merge (into `other`), reopen.
    """

    __tablename__ = "step"

    id: int | None = Field(default=None, primary_key=True)
    incident_id: int = Field(foreign_key="incident.id", index=True)
    key: str = Field(unique=True, index=True, max_length=200)
    at: datetime = Field(sa_type=UtcDateTime, index=True)
    who: str
    source: str
    verb: str
    assignee: str | None = None
    until: datetime | None = Field(default=None, sa_type=UtcDateTime)
    other: int | None = Field(default=None, index=True)
    note: str = ""


class ShadowHitRow(SQLModel, table=True):
    """A rule in status shadow that would have spoken on a live incident: counted, shown to nobody (bot.learning.replay.shadow).

    `version` and `meaning` (kb.rulebase.codec): of the rule as it was then. `leads`: its `fault` would have been the first answer.
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


class SeenRow(SQLModel, table=True):
    """Something that came from outside and must have its effect once: a delivery of Slack, the end of a job."""

    __tablename__ = "seen"

    key: str = Field(primary_key=True, max_length=200)
    at: datetime = Field(sa_type=UtcDateTime, index=True)


class PostingRow(SQLModel, table=True):
    """A message of ours in a chat that is edited in place. What it says is composed when it is sent.

    `version` is raised by every change of what it should say; `sent` is the version that stands there, 0 for the opening words,
    None where nothing does. `state`: a PostingState. `facts`: JSON, what it says beyond its incident.
    `parent`: the posting in whose thread it stands. `lease_until`: a sender is at it. `ready_at`: not to be sent before.
    `once`: the same for two deliveries of one wish and for two workers at one piece of work.
    """

    __tablename__ = "posting"
    __table_args__ = (
        # what the sender looks for five times a second, and what tells of work that failed every second
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
    facts: str = "{}"
    version: int = 1
    sent: int | None = None
    created_at: datetime = Field(sa_type=UtcDateTime, index=True)
    ready_at: datetime = Field(sa_type=UtcDateTime)
    lease_until: datetime | None = Field(default=None, sa_type=UtcDateTime)
    tries: int = 0
    error: str | None = None


class RequestRow(SQLModel, table=True):
    """Somebody who wants a diagnosis, and where the answer goes. `key`: Slack's id of the wish.

    `reply_to`: where an answer for this person alone is sent, for half an hour; `posting_id`: the message that answers;
    `settled`: there is nothing more to be told.
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
    """Something to be sent once besides the postings. `key`: of equal ones one is sent. `method`: how; `payload`: JSON.

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
    error: str | None = None


class ChoiceRow(SQLModel, table=True):
    """What a button stands for that offers one of several: its opaque handle, and the order that pressing it gives (JSON)."""

    __tablename__ = "choice"

    handle: str = Field(primary_key=True, max_length=64)
    tenant: str
    payload: str
    created_at: datetime = Field(sa_type=UtcDateTime, index=True)


class MuteRow(SQLModel, table=True):
    """What is not told unasked until a date. `kind`: rule, job, node; `channel`: there only, None for everywhere."""

    __tablename__ = "mute"

    id: int | None = Field(default=None, primary_key=True)
    key: str = Field(unique=True, max_length=200)
    tenant: str = Field(index=True)
    kind: str
    what: str
    channel: str | None = None
    until: datetime = Field(sa_type=UtcDateTime)
    at: datetime = Field(sa_type=UtcDateTime)
    who: str
    why: str = ""


class FlapRow(SQLModel, table=True):
    """One failure on one chain in one channel; times are seconds since the epoch (bot.policy.notifications.Flap)."""

    __tablename__ = "flap"

    channel: str = Field(primary_key=True, max_length=64)
    chain: str = Field(primary_key=True, max_length=64)
    fingerprint: str = Field(primary_key=True, max_length=128)
    count: int
    said: float
    pause: float
    seen: float


class LookedRow(SQLModel, table=True):
    """Somebody looked at a rule that was often wrong: what was said of it before counts no more."""

    __tablename__ = "looked"

    tenant: str = Field(primary_key=True, max_length=64)
    rule: str = Field(primary_key=True, max_length=128)
    at: datetime = Field(sa_type=UtcDateTime)
    who: str


class MembersRow(SQLModel, table=True):
    """Who is in a group of the chat, as it was last told. `members`: JSON."""

    __tablename__ = "members"

    group_id: str = Field(primary_key=True, max_length=64)
    members: str
    at: datetime = Field(sa_type=UtcDateTime)


class AuditRow(SQLModel, table=True):
    """Who did what, and whether it was allowed."""

    __tablename__ = "audit"

    id: int | None = Field(default=None, primary_key=True)
    at: datetime = Field(sa_type=UtcDateTime, index=True)
    tenant: str
    who: str
    verb: str
    what: str
    allowed: bool
    why: str = ""


class ClaimRow(SQLModel, table=True):
    """A period in which something regular is done once, whoever does it: ("digest", "2026-W47")."""

    __tablename__ = "claim"

    kind: str = Field(primary_key=True, max_length=64)
    period: str = Field(primary_key=True, max_length=64)
    at: datetime = Field(sa_type=UtcDateTime)
    who: str
    state: str = "claimed"


class DigestRow(SQLModel, table=True):
    """The numbers of a week's digest as they were given (JSON, compressed): whatever is drawn of them later is the same.

    `error`: there are none, and the log has more under this id.
    """

    __tablename__ = "digest"

    tenant: str = Field(primary_key=True, max_length=64)
    week: str = Field(primary_key=True, max_length=16)
    at: datetime = Field(sa_type=UtcDateTime)
    numbers_zstd: bytes | None = None
    error: str | None = None


class BaselineRow(SQLModel, table=True):
    """The events of the last good run of a family of jobs (JSON, compressed): what failed ones are compared with.

    `family`: see bot.store.baselines.family_of. `label`: which run it was. `version`: of the miner that made its templates.
    """

    __tablename__ = "baseline"

    tenant: str = Field(primary_key=True, max_length=64)
    family: str = Field(primary_key=True, max_length=200)
    at: datetime = Field(sa_type=UtcDateTime)
    label: str
    version: int
    events_zstd: bytes


class DraftRow(SQLModel, table=True):
    """A rule that is being drafted with a person, from the form to the proposal (bot.learning.drafts.store). `handle`: names its form.

    `parent`: the message in whose thread it is told of. `state`: asked, drafted, refused, proposed. `version` is raised by every
    wish; `wish`: what the person said last (JSON), and what is to be done with it. `content_zstd`: the draft with its replay
    (JSON, compressed).
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
    wish: str = "{}"
    content_zstd: bytes | None = None
    at: datetime = Field(sa_type=UtcDateTime, index=True)


class ProposalRow(SQLModel, table=True):
    """A rule that is proposed to those who own the rules (bot.learning.proposals.store). `key`: of its patterns; closed means not again.

    `state`: asked, open, merged, closed, failed. `version` is raised by every change of what is proposed; `sent` is the one
    that stands on the forge, `commented` the last one that was only told there, because a person works on the branch.
    `content_zstd`: its files, title and backtest (JSON, compressed). `head`: our newest commit; `etag`: of the last look.
    `posting_id`: the message that tells of it. `opened_at`: since when it counts against the limits; `ready_at`: not before.
    `error`: why it waits, or cannot be.
    """

    __tablename__ = "proposal"

    id: int | None = Field(default=None, primary_key=True)
    key: str = Field(unique=True, max_length=200)
    tenant: str
    rule: str = Field(index=True)
    incident_id: int | None = Field(default=None, index=True)
    who: str
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
    error: str | None = None


class PatternRow(SQLModel, table=True):
    """What a failure looked like whose cause people named: an entry of the fault library. `events_zstd`: JSON, kb.precedents.signature.

    `version`: of the miner that made its templates. `closed_as`: the cause in words; `helped`: what was done about it.
    """

    __tablename__ = "pattern"
    __table_args__ = (Index("pattern_tenant_time", "tenant", "at"),)

    incident_id: int = Field(primary_key=True, foreign_key="incident.id")
    tenant: str = Field(max_length=64)
    at: datetime = Field(sa_type=UtcDateTime)
    version: int
    fault: str | None = None
    rule: str | None = None
    closed_as: str
    helped: str
    events_zstd: bytes


class BarRow(SQLModel, table=True):
    """A node that is, or should be, left out. Of one `key` (tenant, cluster, node, scope, job) at most one row is open.

    `state`: proposed by a diagnosis; barred, refused, lifted by people. `scope`: cluster, or job, then `job` is whose. `since`:
    when it was proposed or barred; `until`: it ends by itself; `who`: a diagnosis or a person; `decided_by`: who confirmed,
    refused or lifted it, at `decided_at`. `version`: raised by every change, told by who changes it: of two people one is late.
    """

    __tablename__ = "bar"
    __table_args__ = (
        Index("bar_open_key", "key", unique=True, sqlite_where=text(BAR_OPEN), postgresql_where=text(BAR_OPEN)),
        Index("bar_tenant_state", "tenant", "state", "since"),
    )

    id: int | None = Field(default=None, primary_key=True)
    key: str = Field(max_length=128)
    tenant: str = Field(max_length=64)
    cluster: str
    node: str
    scope: str
    job: str
    state: str
    since: datetime = Field(sa_type=UtcDateTime)
    until: datetime | None = Field(default=None, sa_type=UtcDateTime)
    who: str
    why: str
    incident_id: int | None = Field(default=None, index=True)
    decided_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    decided_by: str | None = None
    version: int = 1


class GoodEndRow(SQLModel, table=True):
    """A run that ended well, told by `link_job` and `link_name` (bot.policy.routing.Link): what came before it in its chain was overcome."""

    __tablename__ = "good_end"

    id: int | None = Field(default=None, primary_key=True)
    key: str = Field(unique=True, max_length=200)
    tenant: str
    link_job: str = Field(index=True)
    link_name: str | None = Field(default=None, index=True)
    at: datetime = Field(sa_type=UtcDateTime, index=True)


class WorkRow(SQLModel, table=True):
    """Something to be done by a worker, once. Of one `key` at most one row is open (waiting or running).

    `state`: a WorkState. `state`: a WorkState. `payload`: JSON. `repeats`: how often it was asked for again meanwhile. `tries`: how often a worker has begun it.
    `spooled`: JSON, what a worker has got so far that another one need not get again.
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
    result: str | None = None
    error: str | None = None
