"""A worker: runs tasks from the queue one by one, in its own process and at low priority.

It sends a heartbeat every few seconds. If it dies, another worker retries the task, so handlers must be idempotent: the id of a
report is a digest, so the same answer is stored once.
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
from bot.store.change_watch import poll
from kb.errors import SignalboxError

BEAT = 2.0  # seconds between heartbeats; people learn of a silent worker within ten
IDLE = 1.0  # seconds between polls of an empty queue
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The result of a task. `within`: writes for the same transaction, so that both happen or neither.

    `within` can return the result, and can run twice: a failed transaction leaves nothing behind.
    """

    result: str
    within: InTransaction | None = None


TaskHandler = Callable[[QueuedTask], TaskResult]


def worker_name(pid: int) -> str:
    """Return the name under which the worker with this process id on this host takes tasks."""
    return f"{socket.gethostname()}:{pid}"


def run(url: str, does: Mapping[str, TaskHandler], stop: Callable[[], bool], *, idle: float = IDLE) -> None:
    """Run tasks until stopped. `does`: the handler of each kind of task."""
    name = worker_name(os.getpid())
    with TaskQueue(url) as worklist:
        # a task that had begun when the store failed is tried again after a minute without heartbeats
        poll(worklist.database, lambda: step(worklist, does, name), stop, idle=idle, what="read the task queue")


def step(worklist: TaskQueue, does: Mapping[str, TaskHandler], name: str) -> bool:
    """Run one task; whether there was one."""
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
        except Exception as error:  # noqa: BLE001 - top-level handler: one task must not stop the worker
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
    """Send heartbeats while the block runs."""
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
