"""A durable task queue: tasks are stored first, claimed by one worker, and retried if that worker dies.

Two people, ten alerts and a redelivery that request the same diagnosis share one task, because a key has at most one open task. It
works the same way on SQLite and PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from sqlalchemy import func, update
from sqlmodel import Session, col, select

from bot.store.database import Repository, insert_new
from bot.store.leases import claim_row
from bot.store.states import OPEN_WORK, WorkState
from bot.store.tables import WorkRow

MOST_TRIES = 3
LOST_AFTER = 60.0  # seconds without a heartbeat until another worker retries the task
GIVEN_UP = "its worker died, and so did those that retried it"
InTransaction = Callable[[Session], str | None]  # runs in the same transaction; returns the result if only known there


@dataclass(frozen=True, slots=True)
class TaskRequest:
    """A requested task. `key`: equal for requests that share a task; `payload`: JSON."""

    kind: str
    key: str
    tenant: str
    payload: str


@dataclass(frozen=True, slots=True)
class QueuedTask:
    """A task. `payload`: JSON; `result`: its outcome, depending on the kind."""

    id: int
    kind: str
    key: str
    tenant: str
    payload: str
    state: str
    created_at: datetime
    done_at: datetime | None
    tries: int
    repeats: int
    spooled: str | None
    worker: str | None
    result: str | None
    error: str | None


class AcceptsTasks(Protocol):
    """A place to enqueue tasks: the queue itself, or the ledger, which also announces the answer."""

    def enqueue(self, wanted: TaskRequest, now: datetime, fold: float = 0.0) -> tuple[QueuedTask, bool]:
        """Enqueue a task; see `TaskQueue.enqueue`."""

    def counts(self) -> dict[str, int]:
        """Return the number of tasks by state."""


class TaskQueue(Repository):
    """The task queue in one database."""

    def enqueue(self, wanted: TaskRequest, now: datetime, fold: float = 0.0) -> tuple[QueuedTask, bool]:
        """Request a task. Return whether it is new.

        Requests with the same key join an open task, or one completed at most `fold` seconds ago.
        """
        return self.database.write(lambda session: enqueue_task(session, wanted, now, fold))

    def claim(self, worker: str, now: datetime) -> QueuedTask | None:
        """Claim the oldest waiting task for this worker; None if there is none."""
        first = select(WorkRow.id).where(col(WorkRow.state) == WorkState.WAITING).order_by(col(WorkRow.id)).limit(1)
        with self.database.errors(), self.database.session() as session:
            if session.exec(first).first() is None:
                return None
        values = {"state": WorkState.RUNNING, "worker": worker, "beat_at": now, "tries": col(WorkRow.tries) + 1}
        with self.database.errors(), self.database.session(write=True) as session:
            row = claim_row(session, WorkRow, first, values, col(WorkRow.state) == WorkState.WAITING)
            return None if row is None else _queued_task(row)

    def heartbeat(self, work_id: int, worker: str, now: datetime) -> bool:
        """Record a heartbeat. Return whether the task still belongs to this worker."""
        return self._change(work_id, worker, {"beat_at": now})

    def spool(self, work_id: int, worker: str, spooled: str) -> bool:
        """Store intermediate data (JSON) for a retry; whether the task still belongs to this worker."""
        return self._change(work_id, worker, {"spooled": spooled})

    def complete(
        self, work_id: int, worker: str, now: datetime, result: str, within: InTransaction | None = None
    ) -> bool:
        """Complete a task. Return whether it still belonged to this worker; if so, `within` runs in the same transaction."""
        values = {"state": WorkState.DONE, "done_at": now, "result": result[:2000], "error": None}
        return self._change(work_id, worker, values, within)

    def fail(self, work_id: int, worker: str, now: datetime, error: str, within: InTransaction | None = None) -> bool:
        """Mark a task as failed."""
        return self._change(work_id, worker, {"state": WorkState.FAILED, "done_at": now, "error": error[:2000]}, within)

    def reclaim(self, now: datetime) -> int:
        """Requeue tasks of dead workers and fail those with too many tries; return how many changed."""
        lost = (col(WorkRow.state) == WorkState.RUNNING, col(WorkRow.beat_at) < now - timedelta(seconds=LOST_AFTER))
        with (
            self.database.errors(),
            self.database.session() as session,
        ):  # every worker polls every second: avoid needless locks
            if session.exec(select(WorkRow.id).where(*lost).limit(1)).first() is None:
                return 0
        with self.database.errors(), self.database.session(write=True) as session:
            over: Any = session.execute(
                update(WorkRow)
                .where(*lost, col(WorkRow.tries) >= MOST_TRIES)
                .values(state=WorkState.FAILED, done_at=now, error=GIVEN_UP)
            )
            back: Any = session.execute(update(WorkRow).where(*lost).values(state=WorkState.WAITING, worker=None))
            return int(over.rowcount) + int(back.rowcount)

    def release(self, dead: Callable[[str], bool], now: datetime) -> dict[int, int]:
        """Requeue the tasks of workers that are known to be dead, without waiting for `LOST_AFTER`; fail those with too many tries.

        `dead`: whether the worker with this name is dead. Return the number of the next try of each requeued task.
        """
        running = select(WorkRow).where(col(WorkRow.state) == WorkState.RUNNING)

        def released(session: Session) -> dict[int, int]:
            again: dict[int, int] = {}
            for row in session.exec(running.with_for_update()):
                if row.worker is None or not dead(row.worker):
                    continue
                if row.tries >= MOST_TRIES:
                    row.state, row.done_at, row.error = WorkState.FAILED, now, GIVEN_UP
                else:
                    row.state, row.worker = WorkState.WAITING, None
                    again[row.id or 0] = row.tries + 1
                session.add(row)
            return again

        return self.database.write(released)

    def work(self, work_id: int) -> QueuedTask | None:
        """Return a task; None if the id is unknown."""
        with self.database.errors(), self.database.session() as session:
            row = session.get(WorkRow, work_id)
            return None if row is None else _queued_task(row)

    def counts(self) -> dict[str, int]:
        """The number of tasks in each state."""
        with self.database.errors(), self.database.session() as session:
            found = session.exec(select(WorkRow.state, func.count()).group_by(col(WorkRow.state)))
            return dict(sorted(found.all()))

    def _change(self, work_id: int, worker: str, values: dict[str, Any], within: InTransaction | None = None) -> bool:
        own = (col(WorkRow.id) == work_id, col(WorkRow.worker) == worker, col(WorkRow.state) == WorkState.RUNNING)

        def change(session: Session) -> bool:
            changed: Any = session.execute(update(WorkRow).where(*own).values(**values))
            if int(changed.rowcount) != 1:
                return False
            result = within(session) if within is not None else None
            if result is not None:
                session.execute(update(WorkRow).where(col(WorkRow.id) == work_id).values(result=result[:2000]))
            return True

        return self.database.write(change)


def enqueue_task(session: Session, wanted: TaskRequest, now: datetime, fold: float) -> tuple[QueuedTask, bool]:
    """Request a task within a write transaction; whether it is new. See `TaskQueue.enqueue`.

    `fold`: seconds after its end within which a task answers the same request again.

    Raises:
        OSError: other processes added and ended tasks with this key again and again.
    """
    for _ in range(3):
        folded = _fold_into_existing(session, wanted.key, now, fold)
        if folded is not None:
            return folded, False
        new = WorkRow(**asdict(wanted), created_at=now, asked_at=now)
        number = insert_new(session, WorkRow, new.model_dump(exclude={"id"}))
        if number is not None:
            new.id = number
            return _queued_task(new), True
        # another process was faster: join its row
    raise OSError(f"failed to queue task {wanted.key!r}")


def _fold_into_existing(session: Session, key: str, now: datetime, fold: float) -> QueuedTask | None:
    recent = now - timedelta(seconds=fold)
    wanted = select(WorkRow).where(col(WorkRow.key) == key).order_by(col(WorkRow.id).desc()).limit(1)
    row = session.exec(wanted.with_for_update()).first()  # SQLite ignores it: it has one writer at a time
    if row is None or not (
        row.state in OPEN_WORK or (row.state == WorkState.DONE and row.done_at and row.done_at > recent)
    ):
        return None
    row.repeats += 1
    row.asked_at = now
    session.flush()
    return _queued_task(row)


def _queued_task(row: WorkRow) -> QueuedTask:
    return QueuedTask(**{name: getattr(row, name) for name in QueuedTask.__dataclass_fields__})
