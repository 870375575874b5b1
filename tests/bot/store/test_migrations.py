"""Steps of the tables: databases of earlier versions are brought up whole, on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, inspect, select, text
from sqlalchemy.engine import make_url
from sqlmodel import SQLModel, col

from bot.queue.tasks import TaskQueue, TaskRequest
from bot.render.report_json import dumps
from bot.store.database import SCHEMA_VERSION, Database, StoreError
from bot.store.incidents import Incident, IncidentStore
from bot.store.tables import IncidentRow
from tests.support.bot_samples import FALLEN_GPU
from tests.support.old_tables import PAYLOAD, REPLAY, REPORT, statements
from tests.support.paths import ROOT
from tests.support.quick_databases import migrate

NOW = datetime(2026, 11, 2, 8, 30, tzinfo=UTC)


@contextmanager
def opened(url: str) -> Iterator[Connection]:
    """A connection without any of our own code; kept at the end."""
    place = make_url(url).database
    if url.startswith("sqlite"):
        assert place is not None
        Path(place).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(url)
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


def make_old(url: str, version: int) -> None:
    """The database as a version made it, with rows."""
    with opened(url) as connection:
        for statement in statements(version, connection.dialect.name):
            connection.exec_driver_sql(statement)


def written(item: Any) -> str:
    """What an index or a constraint is, its condition too."""
    return json.dumps(item, default=str, sort_keys=True)


def tables(url: str) -> dict[str, Any]:
    """Everything that the database says of its tables, but for alembic's own."""
    with opened(url) as connection:
        seen = inspect(connection)
        columns = {
            key: {item["name"]: {**item, "type": str(item["type"])} for item in told}
            for key, told in seen.get_multi_columns().items()
        }
        listed = (seen.get_multi_indexes(), seen.get_multi_unique_constraints(), seen.get_multi_foreign_keys())
        told = (
            columns,
            seen.get_multi_pk_constraint(),
            *({key: sorted(map(written, of[key])) for key in of} for of in listed),
        )
        return {name: [of[schema, name] for of in told] for schema, name in columns if name != "alembic_version"}


def rows(url: str) -> dict[str, list[Any]]:
    """All rows of all tables."""
    with opened(url) as connection:
        names = inspect(connection).get_table_names()
        return {name: sorted(map(repr, connection.exec_driver_sql(f'SELECT * FROM "{name}"'))) for name in names}  # noqa: S608


@pytest.fixture(params=[1, 2])
def version(request: pytest.FixtureRequest) -> int:
    """A version that was made without steps."""
    return request.param


def test_what_an_old_database_holds_stays(database: str, version: int) -> None:
    """Incidents with their reports and texts, and the work of version 2, are there after the steps; new ones can be added."""
    make_old(database, version)
    with IncidentStore(database) as store:
        first = Incident(
            id=1,
            created_at=datetime(2026, 3, 2, 8, 30, tzinfo=UTC),
            report_id="r1",
            fingerprint="4ac1",
            rulebook_digest="sha256:5f0c",
            job_id="47110",
            job_name="llm-70b",
            bundle="/var/spool/night",
            verdict="fault",
            phase="failed",
            fault="gpu_fell_off_bus",
            rule="xid-catalogue",
            summary="GPU 3 of n7 fell off the bus",
        )
        assert [item.report_id for item in store.list()] == ["r2", "r1"]
        record = store.get(1)
        assert (first, REPORT, REPLAY) == (record.incident, record.report_json, record.replay)
        assert (record.replay_size, record.replay_cut) == (300_000, True)
        with store.database.session() as session:
            assert (
                session.execute(
                    select(
                        col(IncidentRow.tenant),
                        col(IncidentRow.pinned),
                        col(IncidentRow.archive),
                        col(IncidentRow.closed_at),
                    )
                ).all()
                == [("default", False, None, None)] * 2
            )
        assert store.add(dumps(FALLEN_GPU), FALLEN_GPU, b"", None, NOW) == 3
    with TaskQueue(database) as work:
        if version == 2:
            assert work.counts() == {"done": 1, "waiting": 1}
            claimed = work.claim("w", NOW)
            assert claimed is not None
            assert (claimed.id, claimed.tenant, claimed.repeats, claimed.tries) == (1, "red", 2, 1)
            assert str(PAYLOAD).replace("'", '"') == claimed.payload
        added, new = work.enqueue(TaskRequest("diagnose", "b", "default", "{}"), NOW)
        assert (added.id, new) == (3 if version == 2 else 1, True)


def test_the_steps_give_the_tables(database: str) -> None:
    """A new database has what `bot.store.tables` says: types, keys, indexes, defaults; alembic finds nothing to do."""
    Database(database).close()
    with opened(database) as connection:
        options = {"compare_type": True, "compare_server_default": True}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, SQLModel.metadata) == []
    stepped = tables(database)
    with opened(database) as connection:
        connection.execute(text("DROP TABLE alembic_version"))
        SQLModel.metadata.drop_all(connection)
        SQLModel.metadata.create_all(connection)
    assert tables(database) == stepped


def test_an_old_database_becomes_as_a_new_one(database: str, version: int) -> None:
    """Whatever the version was, the tables are the same afterwards, and the version and the step are written down."""
    Database(database).close()
    fresh = tables(database)
    with opened(database) as connection:
        connection.execute(text("DROP TABLE alembic_version"))
        SQLModel.metadata.drop_all(connection)
    make_old(database, version)
    Database(database).close()
    assert fresh == tables(database)
    found = rows(database)
    assert [f"(1, {SCHEMA_VERSION})"] == found["schema_version"]
    assert [f"('{SCHEMA_VERSION:04}',)"] == found["alembic_version"]


def test_the_version_is_that_of_the_last_step() -> None:
    """As many steps as the version says, one after the other."""
    script = ScriptDirectory(str(ROOT / "bot" / "store" / "migrations"))
    assert [f"{number:04}" for number in range(SCHEMA_VERSION, 0, -1)] == [
        walk_revision.revision for walk_revision in script.walk_revisions()
    ]


@pytest.mark.quick("sqlite")
def test_two_that_open_an_old_database_at_once_end_well(database: str, tmp_path: Path) -> None:
    """Of two processes that come at the same time one takes the steps; the other finds them taken."""
    make_old(database, 2)
    go = tmp_path / "go"
    code = f"""
import sys, time
from pathlib import Path
import alembic.command
from bot.store.incidents import IncidentStore
print("ready", flush=True)
while not Path({str(go)!r}).exists():
    time.sleep(0.0005)
with IncidentStore({database!r}) as store:
    print(len(store.list()))
"""
    pair = [
        subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
        )
        for _ in range(2)
    ]
    for item in pair:
        assert item.stdout.readline() == "ready\n"
    go.touch()
    assert [item.communicate(timeout=60) for item in pair] == [("2\n", "")] * 2
    assert [f"(1, {SCHEMA_VERSION})"] == rows(database)["schema_version"]


def test_a_newer_database_is_left_as_it_is(database: str) -> None:
    """Tables that a later Signalbox made are refused by name, and nothing is changed."""
    Database(database).close()
    with opened(database) as connection:
        connection.execute(text("UPDATE schema_version SET version = 99"))
    before = rows(database), tables(database)
    with pytest.raises(
        StoreError, match=rf"tables of version 99; this version of Signalbox supports version {SCHEMA_VERSION}$"
    ):
        Database(database)
    assert before == (rows(database), tables(database))


def test_a_step_that_fails_changes_nothing(database: str, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a step breaks off, the old database is as it was, to the last row; the next start brings it up."""
    make_old(database, version)
    before = rows(database), tables(database)
    taken = command.upgrade

    def breaks(config: Any, revision: str) -> None:
        taken(config, revision)
        config.attributes["connection"].exec_driver_sql(
            "INSERT INTO posting (id) VALUES (1)"
        )  # lacks what must be there

    monkeypatch.setattr(command, "upgrade", breaks)
    with pytest.raises(StoreError):
        Database(database)
    assert before == (rows(database), tables(database))
    monkeypatch.setattr(command, "upgrade", taken)
    with IncidentStore(database) as store:
        assert len(store.list()) == 2


def test_a_database_whose_version_is_lost_is_reported(database: str) -> None:
    """Tables without a version raise an error that names the store; nothing is created."""
    make_old(database, 1)
    with opened(database) as connection:
        connection.execute(text("DELETE FROM schema_version"))
    before = rows(database), tables(database)
    with pytest.raises(StoreError, match="cannot be used"):
        Database(database)
    assert before == (rows(database), tables(database))


def test_databases_of_the_tests_are_like_those_that_the_migrations_make(tmp_path):
    """The tests repeat recorded statements instead of running the migrations for each database."""
    urls = [f"sqlite:///{tmp_path / name}" for name in ("migrated.db", "first.db", "second.db")]
    engine = create_engine(urls[0])
    with engine.begin() as connection:
        migrate(connection, None)
    engine.dispose()
    for url in urls[1:]:
        Database(url).close()

    texts = []
    for name in ("migrated.db", "first.db", "second.db"):
        with closing(sqlite3.connect(tmp_path / name)) as connection:
            texts.append(sorted(connection.iterdump()))  # alembic makes the indexes of a table in any order

    assert len(texts[0]) > 50
    assert texts[1] == texts[0]
    assert texts[2] == texts[0]
