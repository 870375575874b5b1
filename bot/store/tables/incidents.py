"""Tables of incidents: reports, their text and attachments, feedback and steps, and the runs they are compared with."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Index, text
from sqlmodel import Field, SQLModel

from bot.store.tables.columns import MaskedText, UtcDateTime

OPEN = "closed_at IS NULL AND merged_into IS NULL"


class IncidentRow(SQLModel, table=True):
    """An incident: a stored report, by the fields that people search for.

    `chain`: shared by the attempts of a job, which `link_job` and `link_name` identify (bot.policy.routing.Link);
    `owner`: owner of the job; `closed_at`: when its cause was confirmed; `pinned`: its evidence is kept regardless of
    age; `archive`: path of its packed evidence.

    For the digest: `attempt`; `width`, the number of nodes; `nodes`, the nodes at fault by the first diagnosis (JSON); `runs`, the attempts
    (JSON, kb.digest.rows.AttemptTimes); `saving`, seconds spent writing checkpoints; `partition`, `framework`,
    `image`; `advice` and `reached`, the last iteration, to tell whether the advice helped.

    Life cycle (bot.incidents.lifecycle; the steps are StepRows): `acked_at`; `assignee`; `snoozed_until`;
    `merged_into`; `reopened_at`, which supersedes earlier feedback. `backfilled`: found in the past, and announced to
    nobody. `private_to`: the Slack user who asked for it privately; None: visible to the whole tenant.

    `bundle`, `source`: the folder of the evidence, and the path of logs that are no bundle; `logs`: digest of the logs, which
    identifies the run (bot.store.same_run).
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
    logs: str | None = Field(default=None, index=True, max_length=64)
    source: str | None = Field(default=None, sa_type=MaskedText)


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
    no_rule, no_failure, unknown; None if a person only pressed Wrong. `nodes`: JSON. `version` counts from 1 in each incident.
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


class BaselineRow(SQLModel, table=True):
    """The events of the last successful run of a family (JSON, compressed), for comparison with failed runs.

    `family`: see bot.store.baselines.family_of. `label`: the run that they come from. `version`: the template miner's version.
    """

    __tablename__ = "baseline"

    tenant: str = Field(primary_key=True, max_length=64)
    family: str = Field(primary_key=True, max_length=200)
    at: datetime = Field(sa_type=UtcDateTime)
    label: str = Field(sa_type=MaskedText)
    version: int
    events_zstd: bytes


class GoodEndRow(SQLModel, table=True):
    """A successful run, identified by `link_job` and `link_name` (bot.policy.routing.Link).

    It resolves earlier failures of the same chain.
    """

    __tablename__ = "good_end"

    id: int | None = Field(default=None, primary_key=True)
    key: str = Field(unique=True, max_length=200)
    tenant: str
    link_job: str = Field(index=True, sa_type=MaskedText)
    link_name: str | None = Field(default=None, index=True, sa_type=MaskedText)
    at: datetime = Field(sa_type=UtcDateTime, index=True)
