"""Past days, packed for the digest; triggers delete a day when one of its reports or what people say about them changes."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

# What a packed day holds or depends on (bot.store.digest_reading)
_READ = (
    "id, tenant, created_at, ended_at, verdict, phase, job_id, job_name, chain, attempt, fault, rule, cluster, owner, partition, "
    "framework, image, gpus, width, nodes, runs, gpu_hours_lost, saving, merged_into, snoozed_until, closed_at, backfilled, "
    "fingerprint, bundle, reached, reopened_at, private_to"
)
_EVENTS = {"INSERT": ("NEW",), "UPDATE": ("OLD", "NEW"), "DELETE": ("OLD",)}
_DELETE = {
    "incident": "DELETE FROM digest_day WHERE tenant = {row}.tenant AND day = {day};",
    "annotation": (
        "DELETE FROM digest_day WHERE EXISTS (SELECT 1 FROM incident WHERE incident.id = {row}.incident_id"
        " AND incident.tenant = digest_day.tenant AND {day} = digest_day.day);"
    ),
}


def upgrade() -> None:
    """Create the table and the triggers."""
    op.create_table(
        "digest_day",
        sa.Column("tenant", sa.String(64), primary_key=True),
        sa.Column("day", sa.String(10), primary_key=True),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("columns_zstd", sa.LargeBinary, nullable=False),
    )
    postgresql = op.get_bind().dialect.name == "postgresql"
    for table, statement in _DELETE.items():
        for kind, rows in _EVENTS.items():
            event = f"UPDATE OF {_READ}" if (table, kind) == ("incident", "UPDATE") else kind
            name = f"digest_day_{table}_{kind.lower()}"
            body = " ".join(statement.format(row=row, day=_day(table, row, postgresql=postgresql)) for row in rows)
            if postgresql:
                op.execute(
                    f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} RETURN NULL; END $$"
                )
                op.execute(f"CREATE TRIGGER {name} AFTER {event} ON {table} FOR EACH ROW EXECUTE FUNCTION {name}()")
            else:
                op.execute(f"CREATE TRIGGER {name} AFTER {event} ON {table} BEGIN {body} END")
    op.execute("UPDATE schema_version SET version = 12")


def _day(table: str, row: str, *, postgresql: bool) -> str:
    """The day of an incident by UTC, as times are stored."""
    column = f"{row if table == 'incident' else 'incident'}.created_at"
    return f"to_char({column}, 'YYYY-MM-DD')" if postgresql else f"substr({column}, 1, 10)"
