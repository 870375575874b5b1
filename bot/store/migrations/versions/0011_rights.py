"""Private answers become private in every list; the use of channels by people is recorded."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

# An incident that only one person requested, privately, and that no channel shows
_ASKED = """
SELECT incident.id AS number, MIN(request.who) AS who, MIN(incident.report_id) AS report_id
FROM incident
JOIN work ON work.result = CAST(incident.id AS VARCHAR)
JOIN request ON request.work_id = work.id
WHERE NOT EXISTS (
    SELECT 1 FROM posting
    WHERE posting.incident_id = incident.id AND (posting.channel LIKE 'C%' OR posting.channel LIKE 'G%')
)
GROUP BY incident.id
HAVING MIN(CASE WHEN request.private THEN 1 ELSE 0 END) = 1 AND COUNT(DISTINCT request.who) = 1
"""


def upgrade() -> None:
    """Add the column and the table; mark incidents that were private."""
    op.create_table(
        "presence",
        sa.Column("who", sa.String(64), primary_key=True),
        sa.Column("channel", sa.String(64), primary_key=True),
        sa.Column("at", sa.DateTime, nullable=False),
    )
    op.create_index("ix_presence_at", "presence", ["at"])
    op.add_column("incident", sa.Column("private_to", sa.String(64)))
    connection = op.get_bind()
    for number, who, report_id in connection.execute(sa.text(_ASKED)).all():
        connection.execute(
            sa.text("UPDATE incident SET private_to = :who, report_id = :report_id WHERE id = :number"),
            {"who": who, "report_id": f"private:{who}:{report_id}"[:128], "number": number},
        )
    op.execute("UPDATE schema_version SET version = 11")
