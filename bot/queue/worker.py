"""A worker: takes work from the list, one piece after the other, in a process of its own and with low priority.

It says every few seconds that it lives; if it dies, another takes the work up again. What it does must bear being done
twice: a report's id is a digest, so the same answer is kept once.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from bot.queue.tasks import InTransaction, QueuedTask, TaskQueue
from bot.runtime import logging as runtime_logging
from bot.runtime import metrics
from bot.store.database import StoreError
from kb.errors import SignalboxError

BEAT = 10.0  # seconds between signs of life
IDLE = 1.0  # seconds between looks at an empty list
PAUSE = 30.0  # seconds at the most before a store that could not be used is tried again
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What came of a piece of work. `within`: what is written in the same transaction, so that both are or neither is.

    It may give the result itself, and may be done twice: of a transaction that failed nothing stands.
    """

    result: str
    within: InTransaction | None = None


TaskHandler = Callable[[QueuedTask], TaskResult]


def run(url: str, does: Mapping[str, TaskHandler], stop: Callable[[], bool], *, idle: float = IDLE) -> None:
    """Work until told to stop. `does`: what is to be done for each kind of work."""
    name = f"{socket.gethostname()}:{os.getpid()}"
    with TaskQueue(url) as worklist:
        pause = idle
        while not stop():
            try:
                busy, pause = step(worklist, does, name), idle
            except StoreError as error:  # what was begun is taken up again once nobody has heard of it for a minute
                _log.warning("cannot read the task queue: %s", error)
                busy, pause = False, min(pause * 2, PAUSE)
            if not busy:
                time.sleep(pause)


def step(worklist: TaskQueue, does: Mapping[str, TaskHandler], name: str) -> bool:
    """Do one piece of work; whether there was one."""
    worklist.reclaim(datetime.now(UTC))
    work = worklist.claim(name, datetime.now(UTC))
    if work is None:
        return False
    do = does.get(work.kind)
    if do is None:
        worklist.fail(work.id, name, datetime.now(UTC), f"unknown task kind {work.kind!r}")
        return True
    began, outcome = time.perf_counter(), "failed"
    with _heartbeats(worklist, work, name), runtime_logging.about(work=work.id, kind=work.kind):
        try:
            done = do(work)
        except SignalboxError as error:
            worklist.fail(work.id, name, datetime.now(UTC), str(error))
        except Exception as error:  # noqa: BLE001 - the outer door of a worker: one piece of work must not end it
            _log.exception("task %d (%s) failed with an internal error", work.id, work.kind)
            outcome = "error"
            told = f"internal error ({type(error).__name__}); see work {work.id} in the log"
            worklist.fail(work.id, name, datetime.now(UTC), told)
        else:
            worklist.complete(work.id, name, datetime.now(UTC), done.result, done.within)
            outcome = "done"
    metrics.timed("work_seconds", time.perf_counter() - began, work.kind, outcome)
    return True


@contextmanager
def _heartbeats(worklist: TaskQueue, work: QueuedTask, name: str) -> Iterator[None]:
    """Give signs of life while something is done."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(BEAT):
            with suppress(SignalboxError):
                worklist.heartbeat(work.id, name, datetime.now(UTC))

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
