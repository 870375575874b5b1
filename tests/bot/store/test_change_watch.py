"""When a poller looks at the store, by a clock of its own."""

from __future__ import annotations

from datetime import UTC, datetime

from bot.store.change_watch import ACTIVE, BUSY, LULL, SOON, UNSEEN, ChangeWatch
from bot.store.database import Database
from bot.store.tables import PresenceRow

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def looks(watch: ChangeWatch, clock: list[float], seconds: float) -> int:
    """How often it looks in this time, polled every 0.2 s."""
    count = 0
    for _ in range(round(seconds / 0.2)):
        clock[0] += 0.2
        count += watch.due()
    return count


def test_a_poller_looks_at_once_after_a_write_and_seldom_in_a_lull(tmp_path):
    """At each poll for a while, then every second, then only for what time brings; its own look changes nothing."""
    clock = [0.0]
    with Database(f"sqlite:///{tmp_path / 's.db'}") as database:
        watch = ChangeWatch(database, lambda: clock[0])
        looks(watch, clock, ACTIVE + LULL)
        assert looks(watch, clock, 10 * LULL) == 10
        database.write(lambda session: session.merge(PresenceRow(who="U1", channel="C1", at=NOON)))
        clock[0] += 0.2
        assert watch.due()
        assert looks(watch, clock, BUSY - 0.4) == round((BUSY - 0.4) / 0.2)
        assert 0 < looks(watch, clock, ACTIVE - BUSY) <= (ACTIVE - BUSY) / SOON + 1
        assert looks(watch, clock, 5 * LULL) <= 5 + 1
        watch.close()
        assert watch.due()  # and opens its connection again


def test_where_writes_cannot_be_seen_it_looks_more_often():
    """As on PostgreSQL, and in memory."""
    clock = [0.0]
    with Database("sqlite://") as database:
        assert database.file is None
        watch = ChangeWatch(database, lambda: clock[0])
        assert abs(looks(watch, clock, 10.0) - 10.0 / (UNSEEN + 0.1)) <= 4
