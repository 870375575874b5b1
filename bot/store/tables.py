"""All database tables: incidents and feedback, tasks, messages, proposals.

A change here needs a migration in `migrations/versions`; a test compares the result of the migrations with these
definitions.
"""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import DateTime, Dialect, Index, TypeDecorator, text
from sqlmodel import AutoString, Field, SQLModel

from bot.runtime.redaction import redact
from bot.store.states import OutboxState, PostingState, WorkState


class UtcDateTime(TypeDecorator[datetime]):
    """A time with a zone, stored as UTC without one and returned as UTC: the same on every database."""

    impl = DateTime
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """The value to store: UTC without a zone."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a time without a zone")
        return value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """The value to return: UTC with a zone."""
        return None if value is None else value.replace(tzinfo=UTC)


class MaskedText(TypeDecorator[str]):
    """A text that comes from a log, a cluster or a person. Secrets are masked on the way in, and in what it is compared with.

    All other text columns hold what the service itself writes: keys, states, ids, digests, addresses that it must keep whole.
    """

    impl = AutoString
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """The value to store."""
        return None if value is None else redact(value)


BAR_OPEN = "state IN ('proposed', 'barred')"
DUE = "sent IS NULL OR sent < version"
OPEN = "closed_at IS NULL AND merged_into IS NULL"
WAITING = "state = 'collecting'"


class SchemaVersion(SQLModel, table=True):
    """The version of the tables, in a single row."""

    __tablename__ = "schema_version"

    id: int = Field(default=1, primary_key=True)
    version: int


class IncidentRow(SQLModel, table=True):
    """An incident: a stored report, by the fields that people search for.

    `chain`: shared by the attempts of a job, which `link_job` and `link_name` identify (bot.policy.routing.Link);
    `owner`: owner of the job; `closed_at`: when its cause was confirmed; `pinned`: its evidence is kept regardless of
    age; `archive`: path of its packed evidence.

    For the digest: `attempt`; `width`, the number of nodes; `nodes`, the suspected nodes (JSON); `runs`, the attempts
    (JSON, kb.digest.rows.AttemptTimes); `saving`, seconds spent writing checkpoints; `partition`, `framework`,
    `image`; `advice` and `reached`, the last iteration, to tell whether the advice helped.

    Life cycle (bot.incidents.lifecycle; the steps are StepRows): `acked_at`; `assignee`; `snoozed_until`;
    `merged_into`; `reopened_at`, which supersedes earlier feedback. `backfilled`: found in the past, and announced to
    nobody. `private_to`: the Slack user who asked for it privately; None: visible to the whole tenant.
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
    job_id: str | None = Field(default=None, index=True, sa_type=MaskedText)
    job_name: str | None = Field(default=None, sa_type=MaskedText)
    bundle: str | None = None
    verdict: str
    phase: str
    fault: str | None = Field(default=None, index=True)
    rule: str | None = None
    summary: str = Field(sa_type=MaskedText)
    tenant: str = Field(default="default", index=True, sa_column_kwargs={"server_default": "default"})
    cluster: str | None = Field(default=None, sa_type=MaskedText)
    chain: str | None = Field(default=None, index=True)
    link_job: str | None = Field(default=None, index=True, sa_type=MaskedText)
    link_name: str | None = Field(default=None, index=True, sa_type=MaskedText)
    owner: str | None = Field(default=None, sa_type=MaskedText)
    gpus: int | None = None
    gpu_hours_lost: float | None = None
    ended_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    closed_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    pinned: bool = Field(default=False, sa_column_kwargs={"server_default": text("false")})
    archive: str | None = None
    attempt: int | None = None
    width: int | None = None
    nodes: str | None = Field(default=None, sa_type=MaskedText)
    runs: str | None = Field(default=None, sa_type=MaskedText)
    saving: float | None = None
    partition: str | None = Field(default=None, sa_type=MaskedText)
    framework: str | None = Field(default=None, sa_type=MaskedText)
    image: str | None = Field(default=None, sa_type=MaskedText)
    advice: str | None = None
    reached: int | None = None
    acked_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    assignee: str | None = Field(default=None, sa_type=MaskedText)
    snoozed_until: datetime | None = Field(default=None, sa_type=UtcDateTime)
    merged_into: int | None = Field(default=None, index=True)
    reopened_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    backfilled: bool = Field(default=False, sa_column_kwargs={"server_default": text("false")})
    private_to: str | None = Field(default=None, max_length=64)


class ReportRow(SQLModel, table=True):
    """The report of an incident, as compressed JSON."""

    __tablename__ = "report"

    incident_id: int = Field(primary_key=True, foreign_key="incident.id")
    json_zstd: bytes


class ReplayRow(SQLModel, table=True):
    """The text of an incident that later rules are tested on, compressed; `size` is the original size in bytes."""

    __tablename__ = "replay"

    incident_id: int = Field(primary_key=True, foreign_key="incident.id")
    text_zstd: bytes
    size: int
    cut: bool


class KeptRow(SQLModel, table=True):
    """A small attachment of an incident, compressed, such as its timeline."""

    __tablename__ = "kept"

    incident_id: int = Field(primary_key=True, foreign_key="incident.id")
    name: str = Field(primary_key=True, max_length=64)
    data_zstd: bytes


class AnnotationRow(SQLModel, table=True):
    """Feedback of a person on an incident, append-only. `key`: deduplicates deliveries of the same click.

    `verdict`: whether the answer was correct. `cause`: the kind of answer that `fault` and `rule` give: shown, fault,
    no_rule, unknown; None if a person only pressed Wrong. `nodes`: JSON. `version` counts from 1 in each incident.
    """

    __tablename__ = "annotation"
    __table_args__ = (Index("annotation_version", "incident_id", "version", unique=True),)

    id: int | None = Field(default=None, primary_key=True)
    incident_id: int = Field(foreign_key="incident.id", index=True)
    version: int
    key: str = Field(unique=True, max_length=200)
    at: datetime = Field(sa_type=UtcDateTime)
    who: str = Field(sa_type=MaskedText)
    source: str
    verdict: str
    cause: str | None = None
    fault: str | None = None
    rule: str | None = None
    nodes: str = Field(default="[]", sa_type=MaskedText)
    action: str = Field(default="", sa_type=MaskedText)
    lost_hours: float | None = None
    note: str = Field(default="", sa_type=MaskedText)
    propose_rule: bool = False


class StepRow(SQLModel, table=True):
    """A step in the life cycle of an incident, append-only. `key`: deduplicates deliveries of the same click.

    `verb`: ack, assign (`assignee`; None unassigns), snooze (`until`), merge (into `other`), reopen.
    """

    __tablename__ = "step"

    id: int | None = Field(default=None, primary_key=True)
    incident_id: int = Field(foreign_key="incident.id", index=True)
    key: str = Field(unique=True, index=True, max_length=200)
    at: datetime = Field(sa_type=UtcDateTime, index=True)
    who: str = Field(sa_type=MaskedText)
    source: str
    verb: str
    assignee: str | None = Field(default=None, sa_type=MaskedText)
    until: datetime | None = Field(default=None, sa_type=UtcDateTime)
    other: int | None = Field(default=None, index=True)
    note: str = Field(default="", sa_type=MaskedText)


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


class SeenRow(SQLModel, table=True):
    """An idempotency key of an inbound event: a Slack delivery, the end of a job."""

    __tablename__ = "seen"

    key: str = Field(primary_key=True, max_length=200)
    at: datetime = Field(sa_type=UtcDateTime, index=True)


class PostingRow(SQLModel, table=True):
    """A message in Slack that is edited in place. Its text is composed when it is sent.

    `version` is raised by every change of the content; `sent` is the delivered version, 0 for the opening text, None
    before the first delivery. `state`: a PostingState. `facts`: JSON, content beyond the incident. `parent`: the
    message whose thread it belongs to. `lease_until`: a sender has claimed it. `ready_at`: not to be sent earlier.
    `once`: deduplicates deliveries of a request and workers on the same task.
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
    """A mute until a date. `kind`: rule, job, node; `channel`: only there, None for everywhere."""

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


class LookedRow(SQLModel, table=True):
    """A review of a rule that was often wrong: earlier feedback on it no longer counts."""

    __tablename__ = "looked"

    tenant: str = Field(primary_key=True, max_length=64)
    rule: str = Field(primary_key=True, max_length=128)
    at: datetime = Field(sa_type=UtcDateTime)
    who: str = Field(sa_type=MaskedText)


class MembersRow(SQLModel, table=True):
    """The members of a Slack user group, as last read. `members`: JSON."""

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


class BaselineRow(SQLModel, table=True):
    """The events of the last successful run of a family (JSON, compressed), for comparison with failed runs.

    `family`: see bot.store.baselines.family_of. `label`: the run it comes from. `version`: of the template miner.
    """

    __tablename__ = "baseline"

    tenant: str = Field(primary_key=True, max_length=64)
    family: str = Field(primary_key=True, max_length=200)
    at: datetime = Field(sa_type=UtcDateTime)
    label: str = Field(sa_type=MaskedText)
    version: int
    events_zstd: bytes


class DraftRow(SQLModel, table=True):
    """A rule drafted with a person, from the form to the proposal (bot.learning.drafts.store).

    `handle`: identifies its form.

    `parent`: the message of its thread. `state`: asked, drafted, refused, proposed. `version` is raised by every
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

    `key`: of its patterns; a closed one is not proposed again.

    `state`: asked, open, merged, closed, failed. `version` is raised by every change of the proposal; `sent` is the
    version on the forge, `commented` the last version that was only commented, because a person works on the branch.
    `content_zstd`: files, title and backtest (JSON, compressed). `head`: our newest commit; `etag`: of the last
    response. `posting_id`: the message about it. `opened_at`: since when it counts against the limits; `ready_at`:
    not to be opened earlier. `error`: why it waits or failed.
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

    `version`: of the template miner. `closed_as`: the cause in words; `helped`: the fix.
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


class GoodEndRow(SQLModel, table=True):
    """A successful run, identified by `link_job` and `link_name` (bot.policy.routing.Link).

    Earlier failures of its chain are resolved.
    """

    __tablename__ = "good_end"

    id: int | None = Field(default=None, primary_key=True)
    key: str = Field(unique=True, max_length=200)
    tenant: str
    link_job: str = Field(index=True, sa_type=MaskedText)
    link_name: str | None = Field(default=None, index=True, sa_type=MaskedText)
    at: datetime = Field(sa_type=UtcDateTime, index=True)


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
