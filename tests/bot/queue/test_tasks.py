"""The task queue: tasks requested once, claimed once, retried; on SQLite and a real PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bot.queue.tasks import MOST_TRIES, TaskQueue, TaskRequest
from bot.queue.worker import TaskResult, step
from kb.errors import SignalboxError

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


def after(seconds: float) -> datetime:
    """A later time."""
    return NOW + timedelta(seconds=seconds)


def wanted(key: str = "a") -> TaskRequest:
    """Return a task request."""
    return TaskRequest("diagnose", key, "default", "{}")


@pytest.fixture
def works(database: str) -> Iterator[TaskQueue]:
    """An empty queue."""
    with TaskQueue(database) as one:
        yield one


def test_the_same_is_asked_for_once(works: TaskQueue) -> None:
    """Requests for an open or recently completed task join it."""
    first, new = works.enqueue(wanted(), NOW)
    assert new
    again, new = works.enqueue(wanted(), after(1))
    assert (again.id, again.repeats, new) == (first.id, 1, False)
    works.claim("w", after(2))
    assert not works.enqueue(wanted(), after(3))[1]
    assert works.complete(first.id, "w", after(4), "7")
    folded, new = works.enqueue(wanted(), after(60), fold=3600)
    assert (folded.id, folded.result, folded.repeats, new) == (first.id, "7", 3, False)
    other, new = works.enqueue(wanted(), after(5000), fold=3600)
    assert new
    assert other.id != first.id


def test_what_failed_is_tried_anew_when_asked(works: TaskQueue) -> None:
    """Requests do not join a failed task."""
    first, _ = works.enqueue(wanted(), NOW)
    works.claim("w", NOW)
    assert works.fail(first.id, "w", NOW, "no such job")
    assert works.work(first.id).error == "no such job"
    assert works.enqueue(wanted(), after(1), fold=3600)[1]
    assert works.counts() == {"failed": 1, "waiting": 1}


def test_work_is_claimed_once_and_in_order(works: TaskQueue) -> None:
    """With many workers each task goes to one of them, the oldest first."""
    ids = [works.enqueue(wanted(str(number)), NOW)[0].id for number in range(20)]
    claimed: list[int] = []

    def work(name: str) -> None:
        while (one := works.claim(name, NOW)) is not None:
            claimed.append(one.id)

    threads = [threading.Thread(target=work, args=(f"w{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(claimed) == ids
    assert works.claim("w", NOW) is None


def test_many_ask_at_once(works: TaskQueue) -> None:
    """A key has at most one open task under concurrent requests."""
    found: list[tuple[int, bool]] = []

    def ask() -> None:
        one, new = works.enqueue(wanted(), NOW)
        found.append((one.id, new))

    threads = [threading.Thread(target=ask) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({pair for pair, _ in found}) == 1
    assert sum(new for _, new in found) == 1
    assert works.work(found[0][0]).repeats == 11


def test_lost_work_is_taken_up_again(works: TaskQueue) -> None:
    """A worker without heartbeats loses its task, and its late result is ignored."""
    one, _ = works.enqueue(wanted(), NOW)
    works.claim("dead", NOW)
    works.heartbeat(one.id, "dead", after(30))
    assert works.reclaim(after(80)) == 0
    assert works.reclaim(after(100)) == 1
    again = works.claim("other", after(101))
    assert (again.id, again.tries) == (one.id, 2)
    assert not works.complete(one.id, "dead", after(102), "late")
    assert not works.heartbeat(one.id, "dead", after(102))
    assert works.complete(one.id, "other", after(103), "7")
    assert works.work(one.id).result == "7"


def test_work_of_a_worker_that_is_known_to_be_dead_is_taken_up_at_once(works: TaskQueue) -> None:
    """Without waiting for its heartbeats; that of others stays theirs, and after three tries it is given up."""
    now = datetime.now(UTC)
    for name in ("one", "two"):
        works.enqueue(TaskRequest("diagnose", name, "default", "{}"), now)
    mine, other = works.claim("dead:1", now), works.claim("well:1", now)
    assert mine is not None
    assert other is not None
    for tries in (2, 3):
        assert works.release(lambda name: name == "dead:1", now) == {mine.id: tries}
        assert works.release(lambda name: name == "dead:1", now) == {}
        again = works.claim("dead:1", now)
        assert again is not None
        assert (again.id, again.tries) == (mine.id, tries)
    assert works.release(lambda name: name == "dead:1", now) == {}
    given_up, kept = works.work(mine.id), works.work(other.id)
    assert given_up is not None
    assert kept is not None
    assert (given_up.state, kept.state, kept.worker) == ("failed", "running", "well:1")
    assert "its worker died" in str(given_up.error)


def test_what_kills_its_workers_is_given_up(works: TaskQueue) -> None:
    """After some tries the task fails with a reason."""
    one, _ = works.enqueue(wanted(), NOW)
    for number in range(MOST_TRIES):
        assert works.claim(f"w{number}", after(number * 100)) is not None
        assert works.reclaim(after(number * 100 + 90)) == 1
    given_up = works.work(one.id)
    assert (given_up.state, "died" in given_up.error) == ("failed", True)
    assert works.claim("w", after(1000)) is None


def test_a_worker_does_what_there_is(works: TaskQueue) -> None:
    """Results are stored; an error ends the task, not the worker."""

    def does(work: Any) -> TaskResult:
        if work.key == "person":
            raise SignalboxError("no job 'x' is known")
        if work.key == "mistake":
            raise ZeroDivisionError
        return TaskResult(f"did {work.key}")

    ids = [works.enqueue(wanted(key), NOW)[0].id for key in ("fine", "person", "mistake")]
    odd, _ = works.enqueue(TaskRequest("dance", "odd", "default", "{}"), NOW)
    for _ in range(4):
        assert step(works, {"diagnose": does}, "w")
    assert not step(works, {"diagnose": does}, "w")
    told = [works.work(item) for item in (*ids, odd.id)]
    assert [item.state for item in told] == ["done", "failed", "failed", "failed"]
    assert told[0].result == "did fine"
    assert [item.error for item in told[1:]] == [
        "no job 'x' is known",
        "internal error (ZeroDivisionError); see work 3 in the log",
        "unknown task kind 'dance'",
    ]


def test_a_list_that_cannot_be_used_says_so(tmp_path: Path) -> None:
    """The error is one line that names the store."""
    (tmp_path / "x").write_text("")
    with pytest.raises(SignalboxError, match="cannot be used"):
        TaskQueue(f"sqlite:///{tmp_path}/x/y.db")
