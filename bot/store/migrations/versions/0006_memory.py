"""The fault library, the node exclusions, and data that shows whether advice helped."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

OPEN = sa.text("state IN ('proposed', 'barred')")


def upgrade() -> None:
    """Create the tables and add the columns."""
    op.add_column("incident", sa.Column("advice", sa.String))
    op.add_column("incident", sa.Column("reached", sa.Integer))
    op.create_table(
        "pattern",
        sa.Column("incident_id", sa.Integer, sa.ForeignKey("incident.id"), primary_key=True),
        sa.Column("tenant", sa.String(64), nullable=False),
        sa.Column("at", sa.DateTime, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("fault", sa.String),
        sa.Column("rule", sa.String),
        sa.Column("closed_as", sa.String, nullable=False),
        sa.Column("helped", sa.String, nullable=False),
        sa.Column("events_zstd", sa.LargeBinary, nullable=False),
    )
    op.create_index("pattern_tenant_time", "pattern", ["tenant", "at"])
    op.create_table(
        "bar",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("key", sa.String(128), nullable=False),
        sa.Column("tenant", sa.String(64), nullable=False),
        sa.Column("cluster", sa.String, nullable=False),
        sa.Column("node", sa.String, nullable=False),
        sa.Column("scope", sa.String, nullable=False),
        sa.Column("job", sa.String, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("since", sa.DateTime, nullable=False),
        sa.Column("until", sa.DateTime),
        sa.Column("who", sa.String, nullable=False),
        sa.Column("why", sa.String, nullable=False),
        sa.Column("incident_id", sa.Integer),
        sa.Column("decided_at", sa.DateTime),
        sa.Column("decided_by", sa.String),
        sa.Column("version", sa.Integer, nullable=False),
    )
    op.create_index("bar_open_key", "bar", ["key"], unique=True, sqlite_where=OPEN, postgresql_where=OPEN)
    op.create_index("bar_tenant_state", "bar", ["tenant", "state", "since"])
    op.create_index("ix_bar_incident_id", "bar", ["incident_id"])
    op.create_table(
        "good_end",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("key", sa.String(200), nullable=False, unique=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("link_job", sa.String, nullable=False),
        sa.Column("link_name", sa.String),
        sa.Column("at", sa.DateTime, nullable=False),
    )
    op.create_index("ix_good_end_at", "good_end", ["at"])
    op.create_index("ix_good_end_link_job", "good_end", ["link_job"])
    op.create_index("ix_good_end_link_name", "good_end", ["link_name"])
    op.execute("UPDATE schema_version SET version = 6")
