"""All that `signalbox serve` remembers, through one pool of connections."""

from __future__ import annotations

from datetime import datetime

from sqlmodel import Session, col, select

from bot.incidents.exclusions import ExclusionList
from bot.incidents.lifecycle import Lifecycle
from bot.incidents.resolution import Closings
from bot.notify.choices import Choices
from bot.notify.messages import Messages
from bot.notify.mutes import MuteStore
from bot.notify.outbox import Outbox
from bot.notify.requests import NOBODY, Requests
from bot.queue.tasks import QueuedTask, TaskQueue, TaskRequest, enqueue_task
from bot.store.incidents import IncidentStore
from bot.store.states import OPEN_WORK
from bot.store.tables import RequestRow


class Ledger(
    IncidentStore, TaskQueue, Requests, Choices, Messages, Outbox, Closings, Lifecycle, MuteStore, ExclusionList
):
    """Incidents, work, messages, close-outs, mutes and bars, in one database."""

    def enqueue(self, wanted: TaskRequest, now: datetime, fold: float = 0.0) -> tuple[QueuedTask, bool]:
        """An alert or a scheduler asks for work: whoever should hear of the answer is told; see `TaskQueue.enqueue`."""

        def asked(session: Session) -> tuple[QueuedTask, bool]:
            work, new = enqueue_task(session, wanted, now, fold)
            key = f"unasked:{work.id}"
            there = session.exec(select(RequestRow.id).where(col(RequestRow.key) == key)).first()
            if work.state in OPEN_WORK and there is None:
                # a request of nobody in particular, one for each piece of work: its row is locked by `enqueue_task`
                session.add(
                    RequestRow(key=key, tenant=wanted.tenant, work_id=work.id, channel="", who=NOBODY, created_at=now)
                )
            return work, new

        return self.write(asked)
