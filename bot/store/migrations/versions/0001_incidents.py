"""The tables of the first release: incidents, their reports, and their replay text."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "schema_version",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("version", sa.Integer, nullable=False),
    )
    op.create_table(
        "incident",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("created_at", sa.DateTime, nullable=False, index=True),
        sa.Column("report_id", sa.String(128), nullable=False, unique=True),
        sa.Column("fingerprint", sa.String, nullable=False, index=True),
        sa.Column("rulebook_digest", sa.String, nullable=False),
        sa.Column("job_id", sa.String, index=True),
        sa.Column("job_name", sa.String),
        sa.Column("bundle", sa.String),
        sa.Column("verdict", sa.String, nullable=False),
        sa.Column("phase", sa.String, nullable=False),
        sa.Column("fault", sa.String, index=True),
        sa.Column("rule", sa.String),
        sa.Column("summary", sa.String, nullable=False),
    )
    op.create_table(
        "report",
        sa.Column("incident_id", sa.Integer, sa.ForeignKey("incident.id"), primary_key=True),
        sa.Column("json_zstd", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "replay",
        sa.Column("incident_id", sa.Integer, sa.ForeignKey("incident.id"), primary_key=True),
        sa.Column("text_zstd", sa.LargeBinary, nullable=False),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("cut", sa.Boolean, nullable=False),
    )
    op.execute("INSERT INTO schema_version (id, version) VALUES (1, 1)")
