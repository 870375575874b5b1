"""Writes of several threads share a transaction on SQLite, and none of them notices the others."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import DBAPIError
from sqlmodel import Session

from bot.store import database, group_commit
from bot.store.database import Database, StoreError
from bot.store.tables import PresenceRow

NOW = datetime(2026, 11, 23, tzinfo=UTC)


class Grouping:
    """A database whose first write is held until the others wait for it, so that they form one group."""

    def __init__(self, store: Database) -> None:
        self.store = store
        self.commits = 0
        event.listen(store._engine, "commit", self._committed)

    def _committed(self, _connection):
        self.commits += 1

    def run(self, *writes) -> list[Future]:
        """Run writes, each on a thread of its own, after one more that holds the lock; return their ended futures."""
        held, go_on = threading.Event(), threading.Event()

        def hold(_session):
            held.set()
            go_on.wait()

        with ThreadPoolExecutor(len(writes) + 1) as pool:
            first = pool.submit(self.store.write, hold)
            held.wait()
            self.commits = 0
            others = []
            for write in writes:  # one after the other, so that they wait in this order
                others.append(pool.submit(self.store.write, write))
                while self.store._group.waiting < len(others):
                    time.sleep(0.001)
            go_on.set()
        first.result()
        self.commits -= 1  # the first one's
        return others


@pytest.fixture
def group(tmp_path):
    """A new store."""
    with Database(f"sqlite:///{tmp_path / 'store.db'}") as store:
        yield Grouping(store)


def _adding(name: str):
    def add(session: Session) -> str:
        session.add(PresenceRow(who=name, channel="C", at=NOW))
        return f"added {name}"

    return add


def _names(store: Database) -> list[str]:
    with store.session() as session:
        return sorted(session.execute(text("SELECT who FROM presence")).scalars())


def test_writes_that_wait_share_a_transaction(group):
    """One commit for all of them; each thread gets its own result."""
    names = [f"U{number:02d}" for number in range(20)]
    done = group.run(*map(_adding, names))
    assert [future.result() for future in done] == [f"added {name}" for name in names]
    assert _names(group.store) == names
    assert group.commits == 1


def test_a_write_that_fails_takes_nothing_of_the_others_with_it(group):
    """Its thread gets its error; what it wrote before is undone."""

    def fails(session):
        _adding("U-bad")(session)
        session.flush()
        raise LookupError("not like that")

    good, bad, more = group.run(_adding("U1"), fails, _adding("U2"))
    assert (good.result(), more.result()) == ("added U1", "added U2")
    assert isinstance(bad.exception(), LookupError)
    assert _names(group.store) == ["U1", "U2"]
    assert group.commits == 1


def test_if_the_database_refuses_one_each_gets_its_own_transaction(group):
    """Such an error may have ended the transaction of all."""

    def twice(session):
        connection = session.connection()
        for _ in range(2):
            connection.execute(text("INSERT INTO presence (who, channel, at) VALUES ('U-twice', 'C', '2026-11-23')"))

    good, bad, more = group.run(_adding("U1"), twice, _adding("U2"))
    assert (good.result(), more.result()) == ("added U1", "added U2")
    assert isinstance(bad.exception(), StoreError)
    assert _names(group.store) == ["U1", "U2"]
    assert group.commits == 2


def test_a_group_that_another_process_keeps_out_is_tried_again(group, monkeypatch):
    """The whole transaction runs again; each write counts once."""
    monkeypatch.setattr(database, "_PAUSES", (0.0, 0.0))
    refused = iter([True])

    def begin(_connection):
        if next(refused, False):
            raise DBAPIError("BEGIN IMMEDIATE", None, _BusyError())

    runs: list[str] = []

    def counted(session):
        runs.append("once more")
        return _adding("U1")(session)

    def busy_first(session):
        begin(session)
        return _adding("U2")(session)

    done = group.run(counted, busy_first)
    assert [future.result() for future in done] == ["added U1", "added U2"]
    assert len(runs) == 2
    assert _names(group.store) == ["U1", "U2"]
    assert group.commits == 1


class _BusyError(Exception):
    sqlite_errorname = "SQLITE_BUSY"


def test_an_interrupted_thread_keeps_no_other_waiting(group, monkeypatch):
    """A keyboard interrupt ends the wait of the thread that was to commit the next group; another one commits it."""

    class Interrupted(threading.Event):
        def wait(self, timeout=None):
            super().wait(timeout)
            raise KeyboardInterrupt

    given_up, other = _adding("U1"), _adding("U2")
    made = group_commit.GroupedWrite
    monkeypatch.setattr(
        group_commit, "GroupedWrite", lambda do: made(do, turn=Interrupted()) if do is given_up else made(do)
    )
    interrupted, done = group.run(given_up, other)
    assert isinstance(interrupted.exception(), KeyboardInterrupt)
    assert done.result() == "added U2"
    assert _names(group.store) == ["U2"]
