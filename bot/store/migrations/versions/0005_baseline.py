"""The events of successful runs, by job family."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "baseline",
        sa.Column("tenant", sa.String(64), primary_key=True),
        sa.Column("family", sa.String(200), primary_key=True),
        sa.Column("at", sa.DateTime, nullable=False),
        sa.Column("label", sa.String, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("events_zstd", sa.LargeBinary, nullable=False),
    )
    op.execute("UPDATE schema_version SET version = 5")
