"""The database of `signalbox serve`: its parts share one pool of connections."""

from __future__ import annotations

from datetime import datetime

from sqlmodel import Session, col, select

from bot.incidents.exclusions import ExclusionList
from bot.incidents.lifecycle import Lifecycle
from bot.incidents.resolution import Closings
from bot.notify.choices import Choices
from bot.notify.lost_workers import LostWorkers
from bot.notify.messages import Messages
from bot.notify.mutes import MuteStore
from bot.notify.outbox import Outbox
from bot.notify.requests import NOBODY, Requests
from bot.queue.tasks import QueuedTask, TaskQueue, TaskRequest, enqueue_task
from bot.store.database import Repository
from bot.store.incidents import IncidentStore
from bot.store.states import OPEN_WORK
from bot.store.tables import RequestRow


class Ledger(Repository):
    """Incidents with their close-outs and life cycle, tasks, messages, mutes and excluded nodes, in one database."""

    def __init__(self, url: str) -> None:
        """Open the database.

        Raises:
            StoreError: the database cannot be opened or written, or was created by a newer version of Signalbox.
        """
        super().__init__(url)
        self.incidents = IncidentStore(self.database)
        self.tasks = TaskQueue(self.database)
        self.requests = Requests(self.database)
        self.choices = Choices(self.database)
        self.messages = Messages(self.database)
        self.outbox = Outbox(self.database)
        self.lost_workers = LostWorkers(self.database)
        self.closings = Closings(self.database)
        self.lifecycle = Lifecycle(self.database)
        self.mutes = MuteStore(self.database)
        self.exclusions = ExclusionList(self.database)

    def enqueue(self, wanted: TaskRequest, now: datetime, fold: float = 0.0) -> tuple[QueuedTask, bool]:
        """Enqueue a task for an alert or a scheduler, with a request that announces its answer; see `TaskQueue.enqueue`."""

        def enqueue(session: Session) -> tuple[QueuedTask, bool]:
            work, new = enqueue_task(session, wanted, now, fold)
            key = f"unasked:{work.id}"
            there = session.exec(select(RequestRow.id).where(col(RequestRow.key) == key)).first()
            if work.state in OPEN_WORK and there is None:
                # a request that belongs to nobody, one per task: `enqueue_task` locks the task's row
                session.add(
                    RequestRow(key=key, tenant=wanted.tenant, work_id=work.id, channel="", who=NOBODY, created_at=now)
                )
            return work, new

        return self.database.write(enqueue)

    def counts(self) -> dict[str, int]:
        """How many tasks are in each state."""
        return self.tasks.counts()
