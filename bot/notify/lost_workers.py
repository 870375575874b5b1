"""What people learn about the worker of a diagnosis that they wait for: it is silent, or it died and another one takes over.

The sender compares what each waiting message says with the state of its task, once a second. This covers every way to lose a worker: a
killed process, a service that was killed as a whole, and a host that is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlmodel import Session, col, select

from bot.notify.messages import encode_json
from bot.notify.outbox import enqueue_item
from bot.notify.requests import NOBODY, to_one
from bot.store.database import Repository
from bot.store.states import OPEN_WORK, PostingState, WorkState
from bot.store.tables import OutboxRow, PostingRow, RequestRow, WorkRow

SILENT_AFTER = 8.0  # seconds without a heartbeat until people are told; another worker takes over much later


@dataclass(frozen=True, slots=True)
class _WorkerState:
    """What there is to tell about the worker of a task. `tries`: the number of the current or next try."""

    tries: int
    silent: bool

    @classmethod
    def of(cls, row: WorkRow, now: datetime) -> _WorkerState:
        waiting = row.state == WorkState.WAITING
        last = row.beat_at
        return cls(
            max(1, row.tries + waiting),
            not waiting and last is not None and last < now - timedelta(seconds=SILENT_AFTER),
        )

    @classmethod
    def told(cls, facts: Mapping[str, Any]) -> _WorkerState:
        return cls(int(facts.get("tries") or 1), bool(facts.get("silent")))

    @property
    def bad(self) -> bool:
        return self.silent or self.tries > 1


class LostWorkers(Repository):
    """Compares the tasks with the messages that wait for them, in one database."""

    def show(self, now: datetime) -> int:
        """Bring waiting messages up to date, and notify requesters who have no message yet; return how many changed."""
        with self.database.errors(), self.database.session() as session:  # no lock unless there is something to write
            begun = session.exec(select(WorkRow).where(col(WorkRow.state).in_(OPEN_WORK), col(WorkRow.tries) > 0)).all()
            if not begun:
                return 0
            states = {row.id or 0: _WorkerState.of(row, now) for row in begun}
            outdated = [
                row.id or 0
                for row in session.exec(
                    select(PostingRow).where(
                        col(PostingRow.work_id).in_(states), col(PostingRow.state) == PostingState.COLLECTING
                    )
                )
                if _WorkerState.told(msgspec.json.decode(row.facts)) != states[row.work_id or 0]
            ]
            bad = [number for number, state in states.items() if state.bad]
            pending = session.exec(
                select(RequestRow).where(
                    col(RequestRow.work_id).in_(bad),
                    col(RequestRow.settled).is_(False),
                    col(RequestRow.who) != NOBODY,
                )
            ).all()
            keys = {_key(request, states[request.work_id]): request.id or 0 for request in pending}
            sent = set(session.exec(select(OutboxRow.key).where(col(OutboxRow.key).in_(keys))))
        untold = [request for key, request in keys.items() if key not in sent]
        if not outdated and not untold:
            return 0
        return self.database.write(lambda session: _tell(session, outdated, untold, now))


def _tell(session: Session, postings: list[int], requests: list[int], now: datetime) -> int:
    """Write what has changed, as the rows are now."""
    count = 0
    for row in session.exec(select(PostingRow).where(col(PostingRow.id).in_(postings)).with_for_update()):
        work = session.get(WorkRow, row.work_id)
        if work is None or row.state != PostingState.COLLECTING:
            continue
        state, facts = _WorkerState.of(work, now), msgspec.json.decode(row.facts)
        if state == _WorkerState.told(facts):
            continue
        row.facts = encode_json({**facts, "tries": state.tries, "silent": state.silent, "at_once": state.bad})
        row.version += 1
        row.ready_at = now
        session.add(row)
        count += 1
    for request in session.exec(select(RequestRow).where(col(RequestRow.id).in_(requests))):
        work = session.get(WorkRow, request.work_id)
        if work is None or request.settled:
            continue
        state = _WorkerState.of(work, now)
        payload = {"form": "worker", "tries": state.tries, "silent": state.silent}
        content = to_one(request, payload, now)
        count += enqueue_item(session, _key(request, state), request.tenant, "reply", content, now=now)
    return count


def _key(request: RequestRow, state: _WorkerState) -> str:
    return f"worker:{request.id}:{state.tries}{':silent' if state.silent else ''}"
