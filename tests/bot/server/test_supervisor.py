"""What the supervisor knows of dead workers, and that it gives back their tasks before anything else."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from bot.queue.worker import worker_name
from bot.server.supervisor import ProcessSpec, Supervisor, _dead_here, deliver, work
from bot.store.database import StoreError


def test_a_worker_of_this_host_that_is_gone_is_dead() -> None:
    """One that lives, one of another host, and a name that is none are not known to be dead."""
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    assert _dead_here(worker_name(child.pid))
    assert not _dead_here(worker_name(os.getpid()))
    for name in (f"another-host:{child.pid}", "worker", "", f"{worker_name(child.pid)}x", worker_name(10**12)):
        assert not _dead_here(name)


class _Tasks:
    """A task queue that is unavailable for a while, and records what happens."""

    def __init__(self, happened: list[str]) -> None:
        self.happened = happened
        self.refusals = 0

    def release(self, dead: Any, now: Any) -> dict[int, int]:
        del now
        if not dead(worker_name(11)):
            return {}
        self.happened.append("asked")
        if self.refusals:
            self.refusals -= 1
            raise StoreError("the store is locked")
        return {7: 2}


def _process(pid: int, *, alive: bool) -> Any:
    return SimpleNamespace(pid=pid, exitcode=-9, is_alive=lambda: alive)


@pytest.fixture
def dying(monkeypatch: pytest.MonkeyPatch) -> tuple[Supervisor, _Tasks, list[str]]:
    """A supervisor with a dead worker and a living sender."""
    happened: list[str] = []
    tasks = _Tasks(happened)
    made = Supervisor("sqlite://", None, [], tasks)  # type: ignore[arg-type]
    made._all = [
        (ProcessSpec("worker 1", work), _process(11, alive=False)),
        (ProcessSpec("sender", deliver), _process(12, alive=True)),
    ]

    def spawn(spec: ProcessSpec) -> Any:
        happened.append(f"started {spec.name}")
        return _process(13, alive=True)

    monkeypatch.setattr(made, "_spawn", spawn)
    happened.clear()  # it asks for those of an earlier service when it starts
    return made, tasks, happened


def test_tasks_are_given_back_before_the_start(dying: tuple[Supervisor, _Tasks, list[str]]) -> None:
    """Once: what was given back is not asked for again."""
    supervisor, _, happened = dying
    told = supervisor.restart_dead()
    assert happened == ["asked", "started worker 1"]
    assert told == [
        "1 task of dead workers will be tried again",
        "the worker 1 exited (status -9) and was restarted",
    ]
    assert supervisor.restart_dead() == []
    assert happened == ["asked", "started worker 1"]


def test_a_locked_store_is_asked_again(dying: tuple[Supervisor, _Tasks, list[str]]) -> None:
    """At each check, until it takes it; the worker is restarted meanwhile."""
    supervisor, tasks, happened = dying
    tasks.refusals = 2
    told = [supervisor.restart_dead() for _ in range(4)]
    assert happened == ["asked", "started worker 1", "asked", "asked"]
    assert [words[:1] for words in told] == [
        ["cannot requeue the tasks of a dead worker yet: the store is locked"],
        ["cannot requeue the tasks of a dead worker yet: the store is locked"],
        ["1 task of dead workers will be tried again"],
        [],
    ]
