"""The digest of an incident's logs, by which a run that is diagnosed again is recognised, and the path of logs that are no bundle."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Add the columns."""
    op.add_column("incident", sa.Column("logs", sa.String(64)))
    op.add_column("incident", sa.Column("source", sa.String))
    op.create_index("ix_incident_logs", "incident", ["logs"])
    op.execute("UPDATE schema_version SET version = 13")
