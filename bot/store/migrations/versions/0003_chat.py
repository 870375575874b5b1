"""Feedback on incidents, chat messages and permissions; the tenant, chain and life cycle of an incident."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add columns to the incidents and create the other tables."""
    # Added in place: a batch would recreate the table, which SQLite rejects while reports refer to its rows.
    op.add_column("incident", sa.Column("tenant", sa.String, nullable=False, server_default="default"))
    op.add_column("incident", sa.Column("cluster", sa.String))
    op.add_column("incident", sa.Column("chain", sa.String))
    op.add_column("incident", sa.Column("link_job", sa.String))
    op.add_column("incident", sa.Column("link_name", sa.String))
    op.add_column("incident", sa.Column("owner", sa.String))
    op.add_column("incident", sa.Column("gpus", sa.Integer))
    op.add_column("incident", sa.Column("gpu_hours_lost", sa.Float))
    op.add_column("incident", sa.Column("ended_at", sa.DateTime))
    op.add_column("incident", sa.Column("closed_at", sa.DateTime))
    op.add_column("incident", sa.Column("pinned", sa.Boolean, nullable=False, server_default=sa.text("false")))
    op.add_column("incident", sa.Column("archive", sa.String))
    op.create_index("ix_incident_tenant", "incident", ["tenant"])
    for name in ("chain", "link_job", "link_name"):
        op.create_index(f"ix_incident_{name}", "incident", [name])
    op.add_column("work", sa.Column("spooled", sa.String))
    op.create_table(
        "kept",
        sa.Column("incident_id", sa.Integer, sa.ForeignKey("incident.id"), primary_key=True),
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("data_zstd", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "annotation",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("incident_id", sa.Integer, sa.ForeignKey("incident.id"), nullable=False, index=True),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("key", sa.String(200), nullable=False, unique=True),
        sa.Column("at", sa.DateTime, nullable=False),
        sa.Column("who", sa.String, nullable=False),
        sa.Column("source", sa.String, nullable=False),
        sa.Column("verdict", sa.String, nullable=False),
        sa.Column("cause", sa.String),
        sa.Column("fault", sa.String),
        sa.Column("rule", sa.String),
        sa.Column("nodes", sa.String, nullable=False),
        sa.Column("action", sa.String, nullable=False),
        sa.Column("lost_hours", sa.Float),
        sa.Column("note", sa.String, nullable=False),
        sa.Column("propose_rule", sa.Boolean, nullable=False),
    )
    op.create_index("annotation_version", "annotation", ["incident_id", "version"], unique=True)
    op.create_table(
        "seen",
        sa.Column("key", sa.String(200), primary_key=True),
        sa.Column("at", sa.DateTime, nullable=False, index=True),
    )
    _messages()
    op.create_table(
        "mute",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("key", sa.String(200), nullable=False, unique=True),
        sa.Column("tenant", sa.String, nullable=False, index=True),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("what", sa.String, nullable=False),
        sa.Column("channel", sa.String),
        sa.Column("until", sa.DateTime, nullable=False),
        sa.Column("at", sa.DateTime, nullable=False),
        sa.Column("who", sa.String, nullable=False),
        sa.Column("why", sa.String, nullable=False),
    )
    op.create_table(
        "flap",
        sa.Column("channel", sa.String(64), primary_key=True),
        sa.Column("chain", sa.String(64), primary_key=True),
        sa.Column("fingerprint", sa.String(128), primary_key=True),
        sa.Column("count", sa.Integer, nullable=False),
        sa.Column("said", sa.Float, nullable=False),
        sa.Column("pause", sa.Float, nullable=False),
        sa.Column("seen", sa.Float, nullable=False),
    )
    op.create_table(
        "looked",
        sa.Column("tenant", sa.String(64), primary_key=True),
        sa.Column("rule", sa.String(128), primary_key=True),
        sa.Column("at", sa.DateTime, nullable=False),
        sa.Column("who", sa.String, nullable=False),
    )
    op.create_table(
        "members",
        sa.Column("group_id", sa.String(64), primary_key=True),
        sa.Column("members", sa.String, nullable=False),
        sa.Column("at", sa.DateTime, nullable=False),
    )
    op.create_table(
        "audit",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("at", sa.DateTime, nullable=False, index=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("who", sa.String, nullable=False),
        sa.Column("verb", sa.String, nullable=False),
        sa.Column("what", sa.String, nullable=False),
        sa.Column("allowed", sa.Boolean, nullable=False),
        sa.Column("why", sa.String, nullable=False),
    )
    op.create_table(
        "claim",
        sa.Column("kind", sa.String(64), primary_key=True),
        sa.Column("period", sa.String(64), primary_key=True),
        sa.Column("at", sa.DateTime, nullable=False),
        sa.Column("who", sa.String, nullable=False),
        sa.Column("state", sa.String, nullable=False),
    )
    op.execute("UPDATE schema_version SET version = 3")


def _messages() -> None:
    op.create_table(
        "posting",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("handle", sa.String(64), nullable=False, unique=True),
        sa.Column("once", sa.String(200), nullable=False, unique=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("channel", sa.String, nullable=False, index=True),
        sa.Column("thread_ts", sa.String),
        sa.Column("ts", sa.String),
        sa.Column("parent", sa.Integer),
        sa.Column("chain", sa.String, index=True),
        sa.Column("work_id", sa.Integer, index=True),
        sa.Column("incident_id", sa.Integer, index=True),
        sa.Column("asked_by", sa.String),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("facts", sa.String, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("sent", sa.Integer),
        sa.Column("created_at", sa.DateTime, nullable=False, index=True),
        sa.Column("ready_at", sa.DateTime, nullable=False),
        sa.Column("lease_until", sa.DateTime),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("error", sa.String),
    )
    for name, column, where in (
        ("posting_due", "ready_at", "sent IS NULL OR sent < version"),
        ("posting_waiting", "work_id", "state = 'collecting'"),
    ):
        op.create_index(name, "posting", [column], sqlite_where=sa.text(where), postgresql_where=sa.text(where))
    op.create_table(
        "request",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("key", sa.String(200), nullable=False, unique=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("work_id", sa.Integer, nullable=False, index=True),
        sa.Column("channel", sa.String, nullable=False),
        sa.Column("thread_ts", sa.String),
        sa.Column("who", sa.String, nullable=False),
        sa.Column("private", sa.Boolean, nullable=False),
        sa.Column("again", sa.Boolean, nullable=False),
        sa.Column("reply_to", sa.String),
        sa.Column("posting_id", sa.Integer),
        sa.Column("settled", sa.Boolean, nullable=False),
        sa.Column("created_at", sa.DateTime, nullable=False),
    )
    on_sqlite, on_postgresql = sa.text("settled IS 0"), sa.text("settled IS false")
    op.create_index("request_open", "request", ["work_id"], sqlite_where=on_sqlite, postgresql_where=on_postgresql)
    op.create_table(
        "outbox",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("key", sa.String(200), nullable=False, unique=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("method", sa.String, nullable=False),
        sa.Column("payload", sa.String, nullable=False),
        sa.Column("posting_id", sa.Integer, index=True),
        sa.Column("state", sa.String, nullable=False, index=True),
        sa.Column("created_at", sa.DateTime, nullable=False),
        sa.Column("ready_at", sa.DateTime, nullable=False),
        sa.Column("lease_until", sa.DateTime),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("error", sa.String),
    )
    op.create_table(
        "choice",
        sa.Column("handle", sa.String(64), primary_key=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("payload", sa.String, nullable=False),
        sa.Column("created_at", sa.DateTime, nullable=False, index=True),
    )
