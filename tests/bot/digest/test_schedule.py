"""The digest is put out once a week, whoever dies over it and however many there are."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from sqlalchemy import event
from sqlmodel import select

from bot.config.chat import Tenant, Weekly
from bot.config.settings import Config
from bot.digest import schedule
from bot.digest.attachments import files_of
from bot.digest.charts import pictures
from bot.digest.codec import loads
from bot.digest.schedule import FILES, KIND, LEASE, numbers_of, tick
from bot.incidents.ledger import Ledger
from bot.store.tables import ClaimRow, DigestRow, OutboxRow, PostingRow
from tests.support.filled_store import FAULTS, fill

DUE = datetime(2026, 11, 23, 8, 0, tzinfo=UTC)  # Monday at nine in Berlin
CONFIG = Config(tenants_of_chat={"default": Tenant(zone="Europe/Berlin", digest=Weekly("C0TEAM")), "other": Tenant()})


class Killed(BaseException):
    """The process is gone."""


@pytest.fixture
def ledger(database):
    """A store with some weeks in it."""
    with Ledger(database) as made:
        fill(made, 3, days=12, pace=0.5, until=DUE)
        yield made


def put_out(ledger):
    """What was put out: messages, parcels, claims, numbers."""
    with ledger.database.session() as session:
        return (
            [
                (item.once, item.channel, item.state, item.facts, item.tenant)
                for item in session.exec(select(PostingRow))
            ],
            [(item.method, item.payload) for item in session.exec(select(OutboxRow))],
            [(item.kind, item.period, item.state) for item in session.exec(select(ClaimRow))],
            [(item.week, item.error) for item in session.exec(select(DigestRow))],
        )


WHOLE = (
    [(f"{KIND}:default:2026-W47", "C0TEAM", KIND, '{"week":"2026-W47"}', "default")],
    [(FILES, '{"week":"2026-W47"}')],
    [(f"{KIND}:default", "2026-W47", "done")],
    [("2026-W47", None)],
)


def test_nothing_before_its_time(ledger):
    """A second before the due time there is no claim and no message."""
    assert tick(ledger.database, CONFIG, FAULTS, DUE - timedelta(seconds=1), "a") == []
    assert put_out(ledger) == ([], [], [], [])


def test_once_however_often_it_is_asked_for(ledger):
    """The first tick puts it out; later ones, of others too, find it done, and the numbers stay as they were."""
    assert len(tick(ledger.database, CONFIG, FAULTS, DUE, "a")) == 1
    numbers = numbers_of(ledger.database, "default", "2026-W47")
    for minutes in (0, 1, 10, 3000):
        assert tick(ledger.database, CONFIG, FAULTS, DUE + timedelta(minutes=minutes), "b") == []
    assert put_out(ledger) == WHOLE
    assert numbers == numbers_of(ledger.database, "default", "2026-W47")
    assert numbers is not None
    digest = loads(numbers)
    assert (digest.week, digest.zone, digest.until, digest.late) == (
        "2026-W47",
        "Europe/Berlin",
        DUE.timestamp(),
        False,
    )
    assert digest.failures > 0


def test_late_up_to_three_days(ledger):
    """Where nothing ran on Monday it comes on Wednesday and says so; on Friday it is over."""
    assert tick(ledger.database, CONFIG, FAULTS, DUE + timedelta(days=3, minutes=1), "a") == []
    assert len(tick(ledger.database, CONFIG, FAULTS, DUE + timedelta(days=2), "a")) == 1
    numbers = numbers_of(ledger.database, "default", "2026-W47")
    assert numbers is not None
    assert loads(numbers).late


def statements(ledger):
    """How many statements a tick has; it puts the digest out."""
    seen = count()
    listener = lambda *_: next(seen)  # noqa: E731
    event.listen(ledger.database._engine, "before_cursor_execute", listener)
    tick(ledger.database, CONFIG, FAULTS, DUE, "a")
    event.remove(ledger.database._engine, "before_cursor_execute", listener)
    return next(seen)


@pytest.mark.slow  # test_two_at_once
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the dead do not close their cursors
def test_whoever_dies_is_followed(ledger):
    """Killed before each statement in turn, another takes it up after its lease: one message, with all that belongs to it."""
    many = statements(ledger)
    assert many >= 10
    for place in range(many):
        with ledger.database.session(write=True) as session:
            for table in (OutboxRow, PostingRow, ClaimRow, DigestRow):
                for row in session.exec(select(table)):
                    session.delete(row)
        left = count()

        def die(*_, left=left, place=place):
            if next(left) == place:
                raise Killed

        event.listen(ledger.database._engine, "before_cursor_execute", die)
        with pytest.raises(Killed):
            tick(ledger.database, CONFIG, FAULTS, DUE, "a")
        event.remove(ledger.database._engine, "before_cursor_execute", die)
        tick(ledger.database, CONFIG, FAULTS, DUE + timedelta(minutes=1), "b")
        tick(ledger.database, CONFIG, FAULTS, DUE + LEASE + timedelta(minutes=2), "b")
        assert put_out(ledger) == WHOLE, place


def test_two_at_once(ledger, database):
    """Four replicas that ask at the same moment put out one message."""
    start, made = threading.Barrier(4), []

    def ask(name):
        with Ledger(database) as mine:
            start.wait()
            made.extend(tick(mine.database, CONFIG, FAULTS, DUE, name))

    threads = [threading.Thread(target=ask, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert put_out(ledger) == WHOLE


def test_one_who_is_slow_says_nothing_when_another_has_taken_over(ledger, monkeypatch):
    """A replica that comes back after its lease finds the claim in other hands, and there is still one message."""
    real = schedule._keep
    calls = count()

    def slow(*args, **more):
        if next(calls) == 0:
            tick(ledger.database, CONFIG, FAULTS, DUE + LEASE + timedelta(seconds=1), "b")
        return real(*args, **more)

    monkeypatch.setattr(schedule, "_keep", slow)
    assert tick(ledger.database, CONFIG, FAULTS, DUE, "a") == []
    assert put_out(ledger) == WHOLE


def test_an_error_of_ours_is_reported(ledger, caplog):
    """Where the figures cannot be worked out there is a message with the id of the error, and the log has more under it."""
    broken: Any = {"nvlink_fault": None}
    assert len(tick(ledger.database, CONFIG, broken, DUE, "a")) == 1
    messages, parcels, claims, [(week, error)] = put_out(ledger)
    assert (week, parcels, claims) == ("2026-W47", [], WHOLE[2])
    assert messages[0][3] == f'{{"week":"2026-W47","error":"{error}"}}'
    assert f"error {error}" in caplog.text
    assert numbers_of(ledger.database, "default", "2026-W47") is None


def test_its_files(tmp_path):
    """Pictures, page and numbers; the pictures are identical each time they are drawn from the stored numbers."""
    with Ledger(f"sqlite:///{tmp_path / 'signalbox.db'}") as ledger:
        fill(ledger, 3, days=12, pace=0.5, until=DUE)
        tick(ledger.database, CONFIG, FAULTS, DUE, "a")
        numbers = numbers_of(ledger.database, "default", "2026-W47")
    assert numbers is not None
    files = files_of(numbers)
    assert [file.name for file in files] == [
        f"failures-2026-W47{end}" for end in ("-pareto.png", "-trend.png", "-nodes.png", ".html", ".json")
    ]
    assert all(file.content.startswith(b"\x89PNG") and 0 < len(file.alt) <= 2000 for file in files[:3])
    assert loads(files[-1].content) == loads(numbers)
    assert [file.content for file in files[:3]] == [picture.png for picture in pictures(loads(numbers))]
