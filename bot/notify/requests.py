"""Who asked for which diagnosis, and how each of them gets an answer: a message in a channel, or words to them alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import or_, update
from sqlmodel import Session, col, select

from bot.notify.messages import Posting, add_once, encode_json, new_handle, posting_of
from bot.notify.outbox import enqueue_files, enqueue_item
from bot.queue.tasks import QueuedTask, TaskRequest, enqueue_task
from bot.store.database import Repository, insert_new
from bot.store.states import PostingState, WorkState
from bot.store.tables import PostingRow, RequestRow, WorkRow

REPLY = timedelta(minutes=29)  # a chat's address for replies lives half an hour
NOBODY = ""  # who wants a diagnosis that no person asked for


@dataclass(frozen=True, slots=True)
class DiagnosisRequest:
    """Somebody wants a diagnosis. `key`: the chat's id of the wish; `reply_to`: the address for words to this person alone.

    `channel`, `thread_ts`: where the answer goes; `private`: to this person alone, in a direct message. `again`: though there is
    an answer already.
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
    """What became of a wish. `second`: it was delivered before; `posting`: the message here that answers it already."""

    work: QueuedTask | None
    second: bool = False
    posting: Posting | None = None


class Requests(Repository):
    """The requests for diagnoses in one database."""

    def request_diagnosis(
        self, wish: DiagnosisRequest, wanted: TaskRequest, now: datetime, fold: float
    ) -> RequestOutcome:
        """Write down that somebody wants a diagnosis, all or nothing."""
        return self.database.write(lambda session: request_diagnosis(session, wish, wanted, now, fold))

    def answer_failed(self, now: datetime) -> int:
        """Tell those who wait for work that failed; how many. Whoever gave it up: a worker, or the list after its death."""
        lost = select(WorkRow.id, WorkRow.error).where(col(WorkRow.state) == WorkState.FAILED)
        waiting = select(PostingRow.work_id).where(col(PostingRow.state) == PostingState.COLLECTING)
        asked = select(RequestRow.work_id).where(col(RequestRow.settled).is_(False))
        either = or_(col(WorkRow.id).in_(waiting), col(WorkRow.id).in_(asked))
        with (
            self.database.errors(),
            self.database.session() as session,
        ):  # every sender asks every second: no lock for nothing
            if session.exec(lost.where(either).limit(1)).first() is None:
                return 0

        def tell(session: Session) -> int:
            told = 0
            for work_id, error in session.exec(lost.where(col(WorkRow.id).in_(waiting))).all():
                session.execute(
                    update(PostingRow)
                    .where(col(PostingRow.work_id) == work_id, col(PostingRow.state) == PostingState.COLLECTING)
                    .values(
                        state=PostingState.FAILED,
                        facts=encode_json({"error": error or "", "work": work_id}),
                        version=col(PostingRow.version) + 1,
                        ready_at=now,
                    )
                )
                told += 1
            for work_id, error in session.exec(lost.where(col(WorkRow.id).in_(asked))).all():
                for request in pending_requests(session, work_id or 0):
                    if request.who == NOBODY:
                        request.settled = True
                        session.add(request)
                        continue
                    add_reply(session, request, {"form": "failed", "error": error or "", "work": work_id}, now)
                    told += 1
            return told

        return self.database.write(tell)


def request_diagnosis(
    session: Session, wish: DiagnosisRequest, wanted: TaskRequest, now: datetime, fold: float
) -> RequestOutcome:
    """`Requests.request_diagnosis` in a transaction that writes."""
    asked = RequestRow(**asdict(wish), work_id=0, created_at=now)
    # the key first: of two deliveries at one moment the second asks for no work
    number = insert_new(session, RequestRow, asked.model_dump(exclude={"id"}))
    if number is None:
        return RequestOutcome(None, second=True)
    work, new = enqueue_task(session, wanted, now, 0.0 if wish.again else fold)
    if work.state == WorkState.DONE and not (work.result or "").isdecimal():
        work, new = enqueue_task(session, wanted, now, 0.0)  # it came to nothing: that is no answer to point to
    session.execute(update(RequestRow).where(col(RequestRow.id) == number).values(work_id=work.id))
    if new:
        return RequestOutcome(work)
    request = session.get_one(RequestRow, number)
    here = session.exec(
        select(PostingRow)
        .where(
            col(PostingRow.work_id) == work.id,
            col(PostingRow.channel) == wish.channel,
            col(PostingRow.state) != PostingState.GONE,
        )
        .order_by(col(PostingRow.id).desc())
    ).first()
    if here is not None and not wish.private:
        request.settled = True
        request.posting_id = here.id
        session.add(request)
        return RequestOutcome(work, posting=posting_of(session, here))
    if work.state == WorkState.DONE and work.result and work.result.isdecimal():
        posting = add_answer_message(session, request, now)
        posting.state, posting.incident_id = PostingState.ANSWERED, int(work.result)
        session.add(posting)
        enqueue_files(session, posting.id or 0, posting.incident_id, now)
    return RequestOutcome(work)


def pending_requests(session: Session, work_id: int) -> Sequence[RequestRow]:
    """Who waits for a piece of work and has no message yet."""
    return session.exec(
        select(RequestRow).where(col(RequestRow.work_id) == work_id, col(RequestRow.settled).is_(False))
    ).all()


def add_answer_message(
    session: Session, request: RequestRow, now: datetime, facts: Mapping[str, Any] | None = None
) -> PostingRow:
    """A message that answers a request; one for all who asked for the same in one channel, however often it is asked for."""
    channel = request.who if request.private else request.channel
    here = session.exec(
        select(PostingRow).where(
            col(PostingRow.work_id) == request.work_id,
            col(PostingRow.channel) == channel,
            col(PostingRow.state) != PostingState.GONE,
        )
    ).first()
    if here is not None:  # two people asked before there was a message
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
    """All who wait for this work have their answer: their messages say it; the ids of these messages."""
    for request in pending_requests(session, work_id):
        if request.who != NOBODY:
            add_answer_message(session, request, now)
    rows = session.exec(
        select(PostingRow).where(col(PostingRow.work_id) == work_id, col(PostingRow.state) == PostingState.COLLECTING)
    ).all()
    for row in rows:
        row.state, row.incident_id, row.facts = PostingState.ANSWERED, incident, encode_json(facts)
        row.version += 1
        row.ready_at = now
        session.add(row)
    session.flush()
    return [row.id for row in rows if row.id is not None]


def add_reply(session: Session, request: RequestRow, payload: Mapping[str, Any], now: datetime) -> None:
    """Words for one person alone, in place of an answer."""
    told = {**payload, "channel": request.channel, "who": request.who, "thread_ts": request.thread_ts}
    if request.reply_to and now < request.created_at + REPLY:
        told["reply_to"] = request.reply_to
    enqueue_item(session, f"reply:{request.id}", request.tenant, "reply", told, now=now)
    request.settled = True
    session.add(request)
