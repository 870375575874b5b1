"""The task queue."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

OPEN = sa.text("state IN ('waiting', 'running')")


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "work",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("key", sa.String(200), nullable=False, index=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("payload", sa.String, nullable=False),
        sa.Column("state", sa.String, nullable=False, index=True),
        sa.Column("created_at", sa.DateTime, nullable=False),
        sa.Column("asked_at", sa.DateTime, nullable=False),
        sa.Column("beat_at", sa.DateTime),
        sa.Column("done_at", sa.DateTime),
        sa.Column("worker", sa.String),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("repeats", sa.Integer, nullable=False),
        sa.Column("result", sa.String),
        sa.Column("error", sa.String),
    )
    op.create_index("work_open_key", "work", ["key"], unique=True, sqlite_where=OPEN, postgresql_where=OPEN)
    op.execute("UPDATE schema_version SET version = 2")
