"""Packed days give the rows that the tables give, whatever changes in between, on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import shutil
import sqlite3
from datetime import UTC, datetime, timedelta
from random import Random
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import create_engine, inspect, make_url, text
from sqlmodel import col, func, select

from bot.incidents.ledger import Ledger
from bot.store import digest_days, digest_reading
from bot.store.digest_days import rows_of_days
from bot.store.digest_reading import rows_between
from bot.store.digest_rows import compute
from bot.store.tables import AnnotationRow, DigestDayRow, IncidentRow
from kb.digest.weeks import Week
from tests.support.filled_store import FAULTS, NOW, fill

START = NOW - timedelta(days=50)


@pytest.fixture(scope="module")
def stores(request, tmp_path_factory):
    """Makes a database with a store of fifty days, each time for one test: it is filled once for each kind, and then copied."""
    made: dict[str, str] = {}

    def fresh(kind: str, name: str) -> str:
        if kind not in made:
            made[kind] = url(kind, "filled", "template1")
            with Ledger(made[kind]) as ledger:
                fill(ledger, 11, days=50, pace=0.4)
                fill(ledger, 12, days=20, pace=0.4, tenant="red")
        return url(kind, name, "filled")

    def url(kind: str, name: str, source: str) -> str:
        if kind == "sqlite":
            if source == "filled":
                shutil.copy(folder / "filled.db", folder / f"{name}.db")
            return f"sqlite:///{folder / name}.db"
        server = request.getfixturevalue("postgres_url")
        at_server(server, f'DROP DATABASE IF EXISTS "{name}"', f'CREATE DATABASE "{name}" TEMPLATE "{source}"')
        return make_url(server).set(database=name).render_as_string(hide_password=False)

    folder = tmp_path_factory.mktemp("stores")
    yield fresh
    if "postgresql" in made:
        server = request.getfixturevalue("postgres_url")
        at_server(server, 'DROP DATABASE "filled"', 'DROP DATABASE IF EXISTS "copied"')


def at_server(url: str, *statements: str) -> None:
    """Run statements outside a transaction, as those on databases need."""
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    engine.dispose()


@pytest.fixture(params=["sqlite", "postgresql"])
def filled(request, stores, monkeypatch):
    """A store of fifty days, every one of which is worth packing."""
    monkeypatch.setattr(digest_days, "MANY", 1)
    with Ledger(stores(request.param, "copied")) as ledger:
        yield ledger


def packed(ledger: Ledger, tenant: str = "default") -> int:
    """How many days are packed."""
    with ledger.database.session() as session:
        query = select(func.count()).select_from(DigestDayRow).where(col(DigestDayRow.tenant) == tenant)
        return session.exec(query).one()


def read(ledger: Ledger, until: datetime, *, start: datetime = START, by_hand: bool = True, tenant: str = "default"):
    """The rows by way of packed days, and those of the tables."""
    found = rows_of_days(ledger.database, tenant, start, until, until=until, by_hand=by_hand)
    with ledger.database.session() as session:
        return found, rows_between(session, tenant, start, until, until=until, by_hand=by_hand)


def test_the_same_rows_at_any_time(filled):
    """First packed and then read packed, from and until odd times, with what people had said by then."""
    for until in (NOW, NOW, NOW - timedelta(days=9, hours=5), NOW - timedelta(days=30)):
        for start in (START, START + timedelta(days=3, hours=7, microseconds=1)):
            for by_hand in (True, False):
                found, expected = read(filled, until, start=start, by_hand=by_hand)
                assert found == expected != []
    assert packed(filled) > 45
    found, expected = read(filled, NOW, tenant="red")
    assert found == expected
    assert packed(filled, "red") > 45


def test_the_same_digest(filled, monkeypatch):
    """All figures, in weeks that a change of clocks cuts at other hours than a day's."""
    for week in (Week(2026, 47), Week(2026, 43)):
        digests = []
        for many in (10**9, 1, 1):
            monkeypatch.setattr(digest_days, "MANY", many)
            zone = ZoneInfo("Australia/Lord_Howe")
            digests.append(compute(filled.database, "default", week, zone, until=NOW, faults=FAULTS, by_hand=True))
        assert digests[0] == digests[1] == digests[2]
        assert digests[0].failures > 2
    assert packed(filled) > 45


def _changed(ledger: Ledger, chance: Random, numbers: list[int]) -> None:
    """One change, as any part of the service makes them, or a person with a client of the database."""
    number, other = chance.sample(numbers, 2)
    at = NOW - timedelta(days=chance.uniform(0, 40))
    with ledger.database.session(write=True) as session:
        row = session.get_one(IncidentRow, number)
        match chance.randrange(9):
            case 0:
                row.merged_into = other if row.merged_into is None else None
            case 1:
                row.snoozed_until = NOW + timedelta(days=chance.uniform(-5, 5))
            case 2:
                row.reopened_at = at
            case 3:
                row.private_to = None if row.private_to else "U1"
            case 4:
                row.created_at = at
            case 5:
                row.closed_at = None if row.closed_at else at
            case 6:
                session.execute(text("DELETE FROM annotation WHERE incident_id = :number"), {"number": number})
            case 7:
                session.execute(
                    text("UPDATE annotation SET lost_hours = 7 WHERE incident_id = :number"), {"number": number}
                )
            case _:
                version = 1000 + chance.randrange(10**9)
                session.add(AnnotationRow(
                    incident_id=number, version=version, key=f"{number}:{version}", at=at, who="ana", source="cli",
                    verdict="wrong", cause="fault", fault="storage_io", nodes='["gpu-001"]', lost_hours=2.5,
                ))  # fmt: skip


@pytest.mark.slow  # test_every_column_that_is_read_counts
def test_any_change_is_seen(filled):
    """Changes made by chance after the days were packed, each followed by a read."""
    chance = Random(5)
    with filled.database.session() as session:
        numbers = [number for number in session.exec(select(IncidentRow.id)).all() if number is not None]
    read(filled, NOW)
    forgotten = 0
    for _ in range(24):
        _changed(filled, chance, numbers)
        forgotten += packed(filled) < 51
        found, expected = read(filled, NOW)
        assert found == expected
    assert forgotten > 10
    fill(filled, 13, days=10, pace=0.3, until=NOW - timedelta(days=20))
    found, expected = read(filled, NOW)
    assert found == expected
    with filled.database.session(write=True) as session:
        for table in ("step", "pattern", "annotation", "replay", "report", "kept"):
            session.execute(text(f"DELETE FROM {table}"))  # noqa: S608
        session.execute(text("DELETE FROM incident WHERE id % 3 = 0"))
    found, expected = read(filled, NOW)
    assert found == expected != []


def test_every_column_that_is_read_counts(filled):
    """A change of any column that the digest reads of an incident deletes the packed day; others leave it."""
    table = inspect(IncidentRow).local_table.c
    # the source changes only with the rest of the report
    unread = {"acked_at", "assignee", "archive", "pinned", "source"}
    for name in (*digest_reading._COLUMNS, "tenant", "private_to", *unread):
        with filled.database.session(write=True) as session:
            session.execute(text("DELETE FROM digest_day"))
            (number, at, tenant) = session.execute(
                select(IncidentRow.id, IncidentRow.created_at, IncidentRow.tenant)
            ).first()
            session.add(DigestDayRow(tenant=tenant, day=str(at.astimezone(UTC).date()), version=0, columns_zstd=b""))
        with filled.database.session(write=True) as session:
            session.connection().execute(table.id.table.update().where(table.id == number).values({name: table[name]}))
        assert (packed(filled, tenant) == 1) == (name in unread), name


def test_days_of_another_form_are_packed_again(filled):
    """After an upgrade that packs otherwise, packed days are replaced and never read; days long past are dropped."""
    read(filled, NOW)
    with filled.database.session(write=True) as session:
        session.execute(text("UPDATE digest_day SET columns_zstd = :rubbish, version = 0"), {"rubbish": b"rubbish"})
        session.add(DigestDayRow(tenant="default", day="2026-01-05", version=1, columns_zstd=b"old"))
    found, expected = read(filled, NOW)
    assert found == expected
    with filled.database.session() as session:
        assert session.exec(select(DigestDayRow.day).where(col(DigestDayRow.version) == 0)).all() == []
        assert "2026-01-05" not in session.exec(select(DigestDayRow.day)).all()


@pytest.mark.parametrize("filled", ["postgresql"], indirect=True)
def test_nothing_is_packed_while_others_write(filled):
    """The rows are read from the tables then, and what is written meanwhile is not lost. On SQLite, writers wait for each other."""
    with filled.database.session(write=True) as session:
        session.execute(text("UPDATE incident SET width = 3 WHERE id = (SELECT min(id) FROM incident)"))
        found, expected = read(filled, NOW)
        assert found == expected
        assert packed(filled) == 0
    found, expected = read(filled, NOW)
    assert found == expected
    assert packed(filled) > 45


def test_a_store_that_cannot_be_written_is_read(tmp_path, monkeypatch):
    """As by a person who may only read the database."""
    path = tmp_path / "signalbox.db"
    with Ledger(f"sqlite:///{path}") as ledger:
        fill(ledger, 11, days=20, pace=0.3)
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TRIGGER refused BEFORE INSERT ON digest_day BEGIN SELECT RAISE(ABORT, 'no'); END")
    monkeypatch.setattr(digest_days, "MANY", 1)
    with Ledger(f"sqlite:///{path}") as ledger:
        found, expected = read(ledger, NOW)
        assert found == expected != []
        assert packed(ledger) == 0
