"""Rules that people are drafting."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "draft",
        sa.Column("handle", sa.String(64), primary_key=True),
        sa.Column("tenant", sa.String(64), nullable=False),
        sa.Column("incident_id", sa.Integer, sa.ForeignKey("incident.id"), nullable=False),
        sa.Column("who", sa.String(128), nullable=False),
        sa.Column("channel", sa.String, nullable=False),
        sa.Column("parent", sa.Integer),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("wish", sa.String, nullable=False),
        sa.Column("content_zstd", sa.LargeBinary),
        sa.Column("at", sa.DateTime, nullable=False),
    )
    op.create_index("ix_draft_incident_id", "draft", ["incident_id"])
    op.create_index("ix_draft_at", "draft", ["at"])
    op.execute("UPDATE schema_version SET version = 10")
