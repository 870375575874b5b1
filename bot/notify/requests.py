"""Who requested which diagnosis, and how each person gets the answer: as a message in a channel, or as a reply that only they see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import or_, update
from sqlmodel import Session, col, select

from bot.notify.messages import Posting, add_once, encode_json, kept_facts, new_handle, posting_of
from bot.notify.outbox import enqueue_files, enqueue_item
from bot.queue.tasks import QueuedTask, TaskRequest, enqueue_task
from bot.store.database import Repository, insert_new
from bot.store.states import PostingState, WorkState
from bot.store.tables import PostingRow, RequestRow, WorkRow

REPLY = timedelta(minutes=29)  # a reply URL is valid for half an hour
NOBODY = ""  # the requester of automatic diagnoses


@dataclass(frozen=True, slots=True)
class DiagnosisRequest:
    """A person's diagnosis request.

    `key`: the chat's id of the request; `reply_to`: the URL for replies that only this person sees.

    `channel`, `thread_ts`: where the answer goes; `private`: to this person only, as a direct message. `again`: even if there
    is an answer already.
    """

    key: str
    tenant: str
    channel: str
    who: str
    thread_ts: str | None = None
    private: bool = False
    again: bool = False
    reply_to: str | None = None


@dataclass(frozen=True, slots=True)
class RequestOutcome:
    """The outcome of a request. `second`: it was a redelivery; `posting`: the message here that already answers it."""

    work: QueuedTask | None
    second: bool = False
    posting: Posting | None = None


class Requests(Repository):
    """The diagnosis requests in one database."""

    def request_diagnosis(
        self, request: DiagnosisRequest, task: TaskRequest, now: datetime, fold: float
    ) -> RequestOutcome:
        """Record a diagnosis request, all or nothing."""
        return self.database.write(lambda session: request_diagnosis(session, request, task, now, fold))

    def tell_undelivered(self, posting: Posting, why: str, now: datetime) -> None:
        """Tell those who asked for a message that the chat refused it. `why`: the chat's word for it."""

        def tell(session: Session) -> None:
            asked = select(RequestRow).where(col(RequestRow.posting_id) == posting.id, col(RequestRow.who) != NOBODY)
            for request in session.exec(asked).all():
                payload = {"form": "undelivered", "job": posting.facts.get("job"), "why": why}
                enqueue_item(
                    session,
                    f"undelivered:{request.id}",
                    request.tenant,
                    "reply",
                    to_one(request, payload, now),
                    now=now,
                )

        self.database.write(tell)

    def answer_failed(self, now: datetime) -> int:
        """Notify requesters of failed tasks, whether a worker or the queue gave up; return how many."""
        lost = select(WorkRow.id, WorkRow.error).where(col(WorkRow.state) == WorkState.FAILED)
        waiting = select(PostingRow.work_id).where(col(PostingRow.state) == PostingState.COLLECTING)
        asked = select(RequestRow.work_id).where(col(RequestRow.settled).is_(False))
        either = or_(col(WorkRow.id).in_(waiting), col(WorkRow.id).in_(asked))
        with (
            self.database.errors(),
            self.database.session() as session,
        ):  # every sender polls every second: avoid needless locks
            if session.exec(lost.where(either).limit(1)).first() is None:
                return 0

        def tell(session: Session) -> int:
            count = 0
            for work_id, error in session.exec(lost.where(col(WorkRow.id).in_(waiting))).all():
                for row in _collecting(session, work_id or 0):
                    row.state = PostingState.FAILED
                    row.facts = kept_facts(row, {"error": error or "", "work": work_id})
                    row.version += 1
                    row.ready_at = now
                    session.add(row)
                    tell_ready(session, row, now)
                count += 1
            for work_id, error in session.exec(lost.where(col(WorkRow.id).in_(asked))).all():
                for request in pending_requests(session, work_id or 0):
                    if request.who == NOBODY:
                        request.settled = True
                        session.add(request)
                        continue
                    add_reply(session, request, {"form": "failed", "error": error or "", "work": work_id}, now)
                    count += 1
            return count

        return self.database.write(tell)


def request_diagnosis(
    session: Session, request: DiagnosisRequest, task: TaskRequest, now: datetime, fold: float
) -> RequestOutcome:
    """Record a diagnosis request within a write transaction."""
    new_row = RequestRow(**asdict(request), work_id=0, created_at=now)
    # insert the key first: of two concurrent deliveries the second queues no task
    number = insert_new(session, RequestRow, new_row.model_dump(exclude={"id"}))
    if number is None:
        return RequestOutcome(None, second=True)
    work, new = enqueue_task(session, task, now, 0.0 if request.again else fold)
    if work.state == WorkState.DONE and not (work.result or "").isdecimal():
        work, new = enqueue_task(session, task, now, 0.0)  # there is no answer to point to
    session.execute(update(RequestRow).where(col(RequestRow.id) == number).values(work_id=work.id))
    if new:
        return RequestOutcome(work)
    row = session.get_one(RequestRow, number)
    here = session.exec(
        select(PostingRow)
        .where(
            col(PostingRow.work_id) == work.id,
            col(PostingRow.channel) == request.channel,
            col(PostingRow.state) != PostingState.GONE,
        )
        .order_by(col(PostingRow.id).desc())
    ).first()
    if here is not None and not request.private:
        row.settled = True
        row.posting_id = here.id
        session.add(row)
        return RequestOutcome(work, posting=posting_of(session, here))
    if work.state == WorkState.DONE and work.result and work.result.isdecimal():
        posting = add_answer_message(session, row, now)
        posting.state, posting.incident_id = PostingState.ANSWERED, int(work.result)
        session.add(posting)
        enqueue_files(session, posting.id or 0, posting.incident_id, now)
    return RequestOutcome(work)


def pending_requests(session: Session, work_id: int) -> Sequence[RequestRow]:
    """Return the requests for a task that have no message yet."""
    return session.exec(
        select(RequestRow).where(col(RequestRow.work_id) == work_id, col(RequestRow.settled).is_(False))
    ).all()


def add_answer_message(
    session: Session, request: RequestRow, now: datetime, facts: Mapping[str, Any] | None = None
) -> PostingRow:
    """Add the message that answers a request. Requests for the same task in one channel share a message."""
    channel = request.who if request.private else request.channel
    here = session.exec(
        select(PostingRow).where(
            col(PostingRow.work_id) == request.work_id,
            col(PostingRow.channel) == channel,
            col(PostingRow.state) != PostingState.GONE,
        )
    ).first()
    if here is not None:  # two people asked before the message existed
        request.posting_id, request.settled = here.id, True
        session.add(request)
        return here
    posting = add_once(
        session,
        PostingRow(
            handle=new_handle(),
            once=f"request:{request.id}",
            tenant=request.tenant,
            channel=channel,
            thread_ts=None if request.private else request.thread_ts,
            work_id=request.work_id,
            asked_by=request.who,
            facts=encode_json(facts or {}),
            created_at=now,
            ready_at=now,
        ),
    )
    request.posting_id, request.settled = posting.id, True
    session.add(request)
    return posting


def answer_requests(
    session: Session, work_id: int, incident: int, facts: Mapping[str, Any], now: datetime
) -> list[int]:
    """Answer all requests for a task; return the ids of their messages."""
    for request in pending_requests(session, work_id):
        if request.who != NOBODY:
            add_answer_message(session, request, now)
    rows = _collecting(session, work_id)
    for row in rows:
        row.state, row.incident_id, row.facts = PostingState.ANSWERED, incident, kept_facts(row, facts)
        row.version += 1
        row.ready_at = now
        session.add(row)
        tell_ready(session, row, now)
    session.flush()
    return [row.id for row in rows if row.id is not None]


def _collecting(session: Session, work_id: int) -> Sequence[PostingRow]:
    """Return the messages that wait for a task."""
    return session.exec(
        select(PostingRow).where(col(PostingRow.work_id) == work_id, col(PostingRow.state) == PostingState.COLLECTING)
    ).all()


def tell_ready(session: Session, row: PostingRow, now: datetime) -> None:
    """Tell everybody who asked for a message that its answer is there, once."""
    asked = select(RequestRow.who).where(col(RequestRow.posting_id) == row.id, col(RequestRow.who) != NOBODY)
    who = list(dict.fromkeys(session.exec(asked.order_by(col(RequestRow.id)))))
    if who:
        enqueue_item(session, f"ready:{row.id}", row.tenant, "ready", {"who": who}, now=now, posting=row.id)


def add_reply(session: Session, request: RequestRow, payload: Mapping[str, Any], now: datetime) -> None:
    """Reply to one person instead of posting an answer."""
    content = to_one(request, payload, now)
    enqueue_item(session, f"reply:{request.id}", request.tenant, "reply", content, now=now)
    request.settled = True
    session.add(request)


def to_one(request: RequestRow, payload: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Return a reply to the person of a request, in the place where it was made."""
    content = {**payload, "channel": request.channel, "who": request.who, "thread_ts": request.thread_ts}
    if request.reply_to and now < request.created_at + REPLY:
        content["reply_to"] = request.reply_to
    return content
