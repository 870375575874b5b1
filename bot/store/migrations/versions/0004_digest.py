"""The weekly digests, and the columns of an incident that they count."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Create the tables and add the columns."""
    op.add_column("incident", sa.Column("attempt", sa.Integer))
    op.add_column("incident", sa.Column("width", sa.Integer))
    op.add_column("incident", sa.Column("nodes", sa.String))
    op.add_column("incident", sa.Column("runs", sa.String))
    op.add_column("incident", sa.Column("saving", sa.Float))
    op.add_column("incident", sa.Column("partition", sa.String))
    op.add_column("incident", sa.Column("framework", sa.String))
    op.add_column("incident", sa.Column("image", sa.String))
    op.create_index("incident_tenant_time", "incident", ["tenant", "created_at", "fault"])
    op.create_table(
        "digest",
        sa.Column("tenant", sa.String(64), primary_key=True),
        sa.Column("week", sa.String(16), primary_key=True),
        sa.Column("at", sa.DateTime, nullable=False),
        sa.Column("numbers_zstd", sa.LargeBinary),
        sa.Column("error", sa.String),
    )
    op.execute("UPDATE schema_version SET version = 4")
