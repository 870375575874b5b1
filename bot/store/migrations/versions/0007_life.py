"""The life cycle of an incident: who took it, how long it is snoozed, what it was merged into; and the recorded steps."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

OPEN = sa.text("closed_at IS NULL AND merged_into IS NULL")


def upgrade() -> None:
    """Apply the changes."""
    op.add_column("incident", sa.Column("acked_at", sa.DateTime))
    op.add_column("incident", sa.Column("assignee", sa.String))
    op.add_column("incident", sa.Column("snoozed_until", sa.DateTime))
    op.add_column("incident", sa.Column("merged_into", sa.Integer))
    op.add_column("incident", sa.Column("reopened_at", sa.DateTime))
    op.add_column("incident", sa.Column("backfilled", sa.Boolean, nullable=False, server_default=sa.text("false")))
    op.create_index("ix_incident_merged_into", "incident", ["merged_into"])
    op.create_index("incident_open", "incident", ["tenant", "created_at"], sqlite_where=OPEN, postgresql_where=OPEN)
    op.create_table(
        "step",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("incident_id", sa.Integer, sa.ForeignKey("incident.id"), nullable=False),
        sa.Column("key", sa.String(200), nullable=False),
        sa.Column("at", sa.DateTime, nullable=False),
        sa.Column("who", sa.String, nullable=False),
        sa.Column("source", sa.String, nullable=False),
        sa.Column("verb", sa.String, nullable=False),
        sa.Column("assignee", sa.String),
        sa.Column("until", sa.DateTime),
        sa.Column("other", sa.Integer),
        sa.Column("note", sa.String, nullable=False),
    )
    op.create_index("ix_step_incident_id", "step", ["incident_id"])
    op.create_index("ix_step_other", "step", ["other"])
    op.create_index("ix_step_key", "step", ["key"], unique=True)
    op.create_index("ix_step_at", "step", ["at"])
    op.execute("UPDATE schema_version SET version = 7")
