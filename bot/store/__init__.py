"""The database: tables, migrations, and the rows of incidents, baselines and idempotency keys."""
