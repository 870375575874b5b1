"""Rules proposed as pull requests."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "proposal",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("key", sa.String(200), nullable=False, unique=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("rule", sa.String, nullable=False, index=True),
        sa.Column("incident_id", sa.Integer, index=True),
        sa.Column("who", sa.String, nullable=False),
        sa.Column("state", sa.String, nullable=False, index=True),
        sa.Column("draft", sa.Boolean, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("sent", sa.Integer),
        sa.Column("commented", sa.Integer),
        sa.Column("forge", sa.String),
        sa.Column("branch", sa.String, nullable=False),
        sa.Column("number", sa.Integer),
        sa.Column("url", sa.String),
        sa.Column("head", sa.String),
        sa.Column("etag", sa.String),
        sa.Column("content_zstd", sa.LargeBinary, nullable=False),
        sa.Column("posting_id", sa.Integer),
        sa.Column("created_at", sa.DateTime, nullable=False),
        sa.Column("opened_at", sa.DateTime),
        sa.Column("looked_at", sa.DateTime),
        sa.Column("ended_at", sa.DateTime),
        sa.Column("ready_at", sa.DateTime, nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("error", sa.String),
    )
    op.execute("UPDATE schema_version SET version = 8")
