"""Matches of shadow rules on live incidents."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "shadow_hit",
        sa.Column("incident_id", sa.Integer, sa.ForeignKey("incident.id"), primary_key=True),
        sa.Column("rule", sa.String(128), primary_key=True),
        sa.Column("tenant", sa.String(64), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("meaning", sa.String(64), nullable=False),
        sa.Column("fault", sa.String(128), nullable=False),
        sa.Column("leads", sa.Boolean, nullable=False),
    )
    op.create_index("shadow_hit_rule", "shadow_hit", ["rule", "meaning"])
    op.execute("UPDATE schema_version SET version = 9")
