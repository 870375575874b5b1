"""Our messages in a chat: each is one row that says what it is about, and is composed and sent until it says what it should.

Why no queue of messages: an edit can be lost, doubled or overtaken by the next one without harm as long as the last one
counts, so a row has a version of what it should say and the one that stands there. Only the opening words are posted; all that
matters is an edit of them. A kill between the chat's answer and our record can so leave opening words without an answer, and
never two answers. What is sent besides (files, words for one person) stands in the outbox.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import case, or_, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import aliased
from sqlmodel import Session, col, select

from bot.queue.tasks import Wanted, Work, ask_within
from bot.store.database import Database, insert_new
from bot.store.tables import ChoiceRow, OutboxRow, PostingRow, RequestRow, WorkRow

LEASE = timedelta(seconds=60)  # a sender that says nothing for so long is dead
PROGRESS = timedelta(seconds=3)  # at the least between two edits that tell how far collecting is
REPLY = timedelta(minutes=29)  # a chat's address for replies lives half an hour
NOBODY = ""  # who wants a diagnosis that no person asked for
GIVEN_UP = timedelta(days=1)  # what could not be sent for so long is not sent


@dataclass(frozen=True, slots=True)
class Wish:
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
class Taken:
    """What became of a wish. `second`: it was delivered before; `posting`: the message here that answers it already."""

    work: Work | None
    second: bool = False
    posting: Posting | None = None


@dataclass(frozen=True, slots=True)
class Posting:
    """A message of ours; see `PostingRow`. `thread`: the message in whose thread it stands, as the chat names it."""

    id: int
    handle: str
    tenant: str
    channel: str
    thread: str | None
    ts: str | None
    parent: int | None
    chain: str | None
    work_id: int | None
    incident_id: int | None
    asked_by: str | None
    state: str
    version: int
    sent: int | None
    created_at: datetime
    tries: int
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Parcel:
    """Something of the outbox that is to be sent. `state`: "completing" where the last call may have had its effect."""

    id: int
    key: str
    tenant: str
    method: str
    payload: Mapping[str, Any]
    state: str
    tries: int
    created_at: datetime
    posting: Posting | None


class Postings(Database):
    """The messages in one database."""

    # -- wishes --------------------------------------------------------------------------------------------------------

    def wish(self, wish: Wish, wanted: Wanted, now: datetime, fold: float) -> Taken:
        """Write down that somebody wants a diagnosis, all or nothing."""
        return self.write(lambda session: wish_within(session, wish, wanted, now, fold))

    def choices(self, tenant: str, payloads: Sequence[str], now: datetime) -> tuple[str, ...]:
        """A handle for each order that a button may give."""
        with self.errors(), self.session(write=True) as session:
            return choices_within(session, tenant, payloads, now)

    def choice(self, handle: str, tenant: str) -> str | None:
        """The order behind a handle; None where it is not this tenant's, or too old."""
        with self.errors(), self.session() as session:
            row = session.get(ChoiceRow, handle[:64])
            return row.payload if row is not None and row.tenant == tenant else None

    def any_choice(self, handle: str) -> str | None:
        """What is behind a handle, whoever's it is: for forms, which say from where they were opened."""
        with self.errors(), self.session() as session:
            row = session.get(ChoiceRow, handle[:64])
            return None if row is None else row.payload

    # -- what messages say ---------------------------------------------------------------------------------------------

    def progress(self, work_id: int, facts: Mapping[str, Any]) -> None:
        """All messages about this work say how far it is, each as soon as it may be edited again."""
        with self.errors(), self.session(write=True) as session:
            session.execute(
                update(PostingRow)
                .where(col(PostingRow.work_id) == work_id, col(PostingRow.state) == "collecting")
                .values(facts=_json(facts), version=col(PostingRow.version) + 1)
            )

    def by_handle(self, handle: str) -> Posting | None:
        """The message with this handle."""
        with self.errors(), self.session() as session:
            row = session.exec(select(PostingRow).where(col(PostingRow.handle) == handle[:64])).first()
            return None if row is None else _posting(session, row)

    # -- sending -------------------------------------------------------------------------------------------------------

    def next_posting(self, now: datetime) -> Posting | None:
        """A message that does not say yet what it should, now this sender's for a minute; the oldest first."""
        head = aliased(PostingRow)
        due = (
            select(PostingRow.id)
            .where(
                or_(col(PostingRow.sent).is_(None), col(PostingRow.sent) < col(PostingRow.version)),
                col(PostingRow.ready_at) <= now,
                or_(col(PostingRow.lease_until).is_(None), col(PostingRow.lease_until) < now),
                col(PostingRow.state) != "gone",
                or_(
                    col(PostingRow.parent).is_(None),
                    col(PostingRow.ts).is_not(None),
                    col(PostingRow.parent).in_(select(head.id).where(col(head.ts).is_not(None))),
                ),
            )
            .order_by(col(PostingRow.sent).is_not(None), col(PostingRow.ready_at), col(PostingRow.id))
            .limit(1)
        )
        with self.errors(), self.session(write=True) as session:
            if session.get_bind().dialect.name != "sqlite":
                due = due.with_for_update(skip_locked=True)
            row = session.execute(
                update(PostingRow)
                .where(col(PostingRow.id) == due.scalar_subquery())
                .values(lease_until=now + LEASE, tries=col(PostingRow.tries) + 1)
                .returning(PostingRow)
            ).scalar_one_or_none()
            return None if row is None else _posting(session, row)

    def stands(self, posting: Posting, ts: str, channel: str, sent: int, now: datetime) -> bool:
        """It stands in the chat as `ts` and says `sent`; it goes on at once where it should say more.

        False where it stands elsewhere already: this sender was so slow that another one took it up.
        """
        soon = now if sent == 0 else now + PROGRESS
        values = {"ts": ts, "channel": channel, "sent": sent, "lease_until": None, "tries": 0, "error": None}
        # only what tells how far collecting is waits for the next edit: an answer may have come meanwhile
        ready = case((col(PostingRow.state) == "collecting", soon), else_=now)

        def change(session: Session) -> bool:
            changed: Any = session.execute(
                update(PostingRow)
                .where(col(PostingRow.id) == posting.id, or_(col(PostingRow.ts).is_(None), col(PostingRow.ts) == ts))
                .values(**values, ready_at=ready)
            )
            return int(changed.rowcount) == 1

        return self.write(change)

    def later(self, posting: Posting, at: datetime, error: str) -> None:
        """It could not be sent: not before `at` again."""
        self._change_posting(posting.id, {"lease_until": None, "ready_at": at, "error": error[:500]})

    def gone(self, posting: Posting, error: str) -> None:
        """It cannot be sent at all, or was deleted in the chat."""
        self._change_posting(posting.id, {"lease_until": None, "state": "gone", "error": error[:500]})

    def redirect(self, posting: Posting, channel: str, facts: Mapping[str, Any], now: datetime) -> None:
        """It goes elsewhere: the chat would not have it where it was to stand."""
        values = {"channel": channel, "thread_ts": None, "parent": None, "facts": _json({**posting.facts, **facts})}
        self._change_posting(posting.id, {**values, "lease_until": None, "ready_at": now})

    def postpone(self, posting: int, at: datetime) -> None:
        """A reminder comes once more, as a new message."""
        self._change_posting(posting, {"ready_at": at, "ts": None, "sent": None})

    def dismiss(self, posting: int) -> None:
        """A reminder is not needed: it says so, and comes no more."""
        with self.errors(), self.session(write=True) as session:
            session.execute(
                update(PostingRow)
                .where(col(PostingRow.id) == posting)
                .values(facts='{"dismissed":true}', version=col(PostingRow.version) + 1)
            )

    def next_parcel(self, now: datetime) -> Parcel | None:
        """Something of the outbox, now this sender's; what belongs to a message waits until that stands in the chat."""
        due = (
            select(OutboxRow.id)
            .outerjoin(PostingRow, col(PostingRow.id) == col(OutboxRow.posting_id))
            .where(
                col(OutboxRow.state).in_(("waiting", "sending", "completing")),
                col(OutboxRow.ready_at) <= now,
                or_(col(OutboxRow.lease_until).is_(None), col(OutboxRow.lease_until) < now),
                or_(col(OutboxRow.posting_id).is_(None), col(PostingRow.sent) > 0),
            )
            .order_by(col(OutboxRow.id))
            .limit(1)
        )
        with self.errors(), self.session(write=True) as session:
            if session.get_bind().dialect.name != "sqlite":
                due = due.with_for_update(skip_locked=True, of=OutboxRow)
            row = session.execute(
                update(OutboxRow)
                .where(col(OutboxRow.id) == due.scalar_subquery())
                .values(lease_until=now + LEASE, tries=col(OutboxRow.tries) + 1)
                .returning(OutboxRow)
            ).scalar_one_or_none()
            if row is None:
                return None
            parcel = _parcel(session, row)
            if row.state == "waiting":
                row.state = "sending"
                session.add(row)
            return parcel

    def parcel_is(self, parcel: Parcel, state: str, error: str | None = None, ready_at: datetime | None = None) -> None:
        """A parcel is sent, failed, completing, or waiting for another try."""
        values: dict[str, Any] = {"state": state, "error": None if error is None else error[:500]}
        if state != "completing":
            values["lease_until"] = None
        if ready_at is not None:
            values["ready_at"] = ready_at
        self.write(
            lambda session: session.execute(update(OutboxRow).where(col(OutboxRow.id) == parcel.id).values(**values))
        )

    def settle(self, now: datetime) -> int:
        """Tell those who wait for work that failed; how many. Whoever gave it up: a worker, or the list after its death."""
        lost = select(WorkRow.id, WorkRow.error).where(col(WorkRow.state) == "failed")
        waiting = select(PostingRow.work_id).where(col(PostingRow.state) == "collecting")
        asked = select(RequestRow.work_id).where(col(RequestRow.settled).is_(False))
        either = or_(col(WorkRow.id).in_(waiting), col(WorkRow.id).in_(asked))
        with self.errors(), self.session() as session:  # every sender asks every second: no lock for nothing
            if session.exec(lost.where(either).limit(1)).first() is None:
                return 0

        def tell(session: Session) -> int:
            told = 0
            for work_id, error in session.exec(lost.where(col(WorkRow.id).in_(waiting))).all():
                session.execute(
                    update(PostingRow)
                    .where(col(PostingRow.work_id) == work_id, col(PostingRow.state) == "collecting")
                    .values(
                        state="failed",
                        facts=_json({"error": error or "", "work": work_id}),
                        version=col(PostingRow.version) + 1,
                        ready_at=now,
                    )
                )
                told += 1
            for work_id, error in session.exec(lost.where(col(WorkRow.id).in_(asked))).all():
                for request in pending_within(session, work_id or 0):
                    if request.who == NOBODY:
                        request.settled = True
                        session.add(request)
                        continue
                    reply_within(session, request, {"form": "failed", "error": error or "", "work": work_id}, now)
                    told += 1
            return told

        return self.write(tell)

    def _change_posting(self, posting: int, values: Mapping[str, Any]) -> None:
        self.write(
            lambda session: session.execute(update(PostingRow).where(col(PostingRow.id) == posting).values(**values))
        )


# --- in a transaction of somebody else -------------------------------------------------------------------------------


def wish_within(session: Session, wish: Wish, wanted: Wanted, now: datetime, fold: float) -> Taken:
    """`Postings.wish` in a transaction that writes."""
    asked = RequestRow(**asdict(wish), work_id=0, created_at=now)
    # the key first: of two deliveries at one moment the second asks for no work
    number = insert_new(session, RequestRow, asked.model_dump(exclude={"id"}))
    if number is None:
        return Taken(None, second=True)
    work, new = ask_within(session, wanted, now, 0.0 if wish.again else fold)
    if work.state == "done" and not (work.result or "").isdecimal():
        work, new = ask_within(session, wanted, now, 0.0)  # it came to nothing: that is no answer to point to
    session.execute(update(RequestRow).where(col(RequestRow.id) == number).values(work_id=work.id))
    if new:
        return Taken(work)
    request = session.get_one(RequestRow, number)
    here = session.exec(
        select(PostingRow)
        .where(
            col(PostingRow.work_id) == work.id, col(PostingRow.channel) == wish.channel, col(PostingRow.state) != "gone"
        )
        .order_by(col(PostingRow.id).desc())
    ).first()
    if here is not None and not wish.private:
        request.settled = True
        request.posting_id = here.id
        session.add(request)
        return Taken(work, posting=_posting(session, here))
    if work.state == "done" and work.result and work.result.isdecimal():
        posting = post_within(session, request, now)
        posting.state, posting.incident_id = "answered", int(work.result)
        session.add(posting)
        attach_within(session, posting.id or 0, posting.incident_id, now)
    return Taken(work)


def pending_within(session: Session, work_id: int) -> Sequence[RequestRow]:
    """Who waits for a piece of work and has no message yet."""
    return session.exec(
        select(RequestRow).where(col(RequestRow.work_id) == work_id, col(RequestRow.settled).is_(False))
    ).all()


def post_within(
    session: Session, request: RequestRow, now: datetime, facts: Mapping[str, Any] | None = None
) -> PostingRow:
    """A message that answers a request; one for all who asked for the same in one channel, however often it is asked for."""
    channel = request.who if request.private else request.channel
    here = session.exec(
        select(PostingRow).where(
            col(PostingRow.work_id) == request.work_id,
            col(PostingRow.channel) == channel,
            col(PostingRow.state) != "gone",
        )
    ).first()
    if here is not None:  # two people asked before there was a message
        request.posting_id, request.settled = here.id, True
        session.add(request)
        return here
    posting = _posted(
        session,
        PostingRow(
            handle=_handle(),
            once=f"request:{request.id}",
            tenant=request.tenant,
            channel=channel,
            thread_ts=None if request.private else request.thread_ts,
            work_id=request.work_id,
            asked_by=request.who,
            facts=_json(facts or {}),
            created_at=now,
            ready_at=now,
        ),
    )
    request.posting_id, request.settled = posting.id, True
    session.add(request)
    return posting


def unasked_within(
    session: Session,
    once: str,
    *,
    tenant: str,
    channel: str,
    chain: str,
    incident: int,
    facts: Mapping[str, Any],
    now: datetime,
) -> PostingRow:
    """A message that nobody asked for; in the thread of the last one of its chain there, of the last day."""
    head = session.exec(
        select(PostingRow)
        .where(
            col(PostingRow.chain) == chain,
            col(PostingRow.channel) == channel,
            col(PostingRow.parent).is_(None),
            col(PostingRow.state) != "gone",
            col(PostingRow.created_at) > now - timedelta(days=1),
            col(PostingRow.once) != once,
        )
        .order_by(col(PostingRow.id).desc())
    ).first()
    posting = _posted(
        session,
        PostingRow(
            handle=_handle(),
            once=once,
            tenant=tenant,
            channel=channel,
            parent=None if head is None else head.id,
            chain=chain,
            incident_id=incident,
            state="answered",
            facts=_json(facts),
            created_at=now,
            ready_at=now,
        ),
    )
    if head is not None:
        head.version += 1  # it counts the attempts
        session.add(head)
    return posting


def tell_within(
    session: Session,
    once: str,
    tenant: str,
    *,
    channel: str,
    parent: int | None,
    state: str,
    facts: Mapping[str, Any],
    now: datetime,
) -> int:
    """A message of its own kind, in the thread of another one where `parent` is one; its id. Of one `once` there is one."""
    row = PostingRow(
        handle=_handle(), once=once, tenant=tenant, channel=channel, parent=parent, state=state, facts=_json(facts),
        created_at=now, ready_at=now,
    )  # fmt: skip
    return _posted(session, row).id or 0


def remind_within(session: Session, posting: int, at: datetime, now: datetime) -> None:
    """Ask who asked, later and alone, what it was; once for each incident."""
    row = session.get_one(PostingRow, posting)
    if row.asked_by is None or row.incident_id is None:
        return
    _posted(
        session,
        PostingRow(
            handle=_handle(),
            once=f"remind:{row.incident_id}",
            tenant=row.tenant,
            channel=row.asked_by,
            incident_id=row.incident_id,
            asked_by=row.asked_by,
            state="reminder",
            created_at=now,
            ready_at=at,
        ),
    )


def answered_within(
    session: Session, work_id: int, incident: int, facts: Mapping[str, Any], now: datetime
) -> list[int]:
    """All who wait for this work have their answer: their messages say it; the ids of these messages."""
    for request in pending_within(session, work_id):
        if request.who != NOBODY:
            post_within(session, request, now)
    rows = session.exec(
        select(PostingRow).where(col(PostingRow.work_id) == work_id, col(PostingRow.state) == "collecting")
    ).all()
    for row in rows:
        row.state, row.incident_id, row.facts = "answered", incident, _json(facts)
        row.version += 1
        row.ready_at = now
        session.add(row)
    session.flush()
    return [row.id for row in rows if row.id is not None]


def changed_within(session: Session, incidents: Sequence[int]) -> None:
    """The messages about these incidents say something else now: they are composed and sent anew."""
    session.execute(
        update(PostingRow)
        .where(col(PostingRow.incident_id).in_(incidents))
        .values(version=col(PostingRow.version) + 1, tries=0)
    )


def reply_within(session: Session, request: RequestRow, payload: Mapping[str, Any], now: datetime) -> None:
    """Words for one person alone, in place of an answer."""
    told = {**payload, "channel": request.channel, "who": request.who, "thread_ts": request.thread_ts}
    if request.reply_to and now < request.created_at + REPLY:
        told["reply_to"] = request.reply_to
    put_within(session, f"reply:{request.id}", request.tenant, "reply", told, now=now)
    request.settled = True
    session.add(request)


def put_within(
    session: Session,
    key: str,
    tenant: str,
    method: str,
    payload: Mapping[str, Any],
    *,
    now: datetime,
    posting: int | None = None,
) -> bool:
    """Something to be sent once; whether it is new."""
    row = OutboxRow(
        key=key, tenant=tenant, method=method, payload=_json(payload), posting_id=posting, created_at=now, ready_at=now
    )
    return insert_new(session, OutboxRow, row.model_dump(exclude={"id"})) is not None


def attach_within(session: Session, posting: int, incident: int, now: datetime) -> None:
    """The evidence and the picture of an incident, into the thread of a message, once."""
    row = session.get_one(PostingRow, posting)
    put_within(
        session, f"files:{posting}:{incident}", row.tenant, "files", {"incident": incident}, now=now, posting=posting
    )


def choices_within(session: Session, tenant: str, payloads: Sequence[str], now: datetime) -> tuple[str, ...]:
    """`Postings.choices` in a transaction that writes."""
    handles = tuple(_handle() for _ in payloads)
    for handle, payload in zip(handles, payloads, strict=True):
        session.add(ChoiceRow(handle=handle, tenant=tenant, payload=payload, created_at=now))
    return handles


def _posted(session: Session, row: PostingRow) -> PostingRow:
    """The row, or the one that is there already for the same."""
    there = session.exec(select(PostingRow).where(col(PostingRow.once) == row.once)).first()
    if there is not None:
        return there
    try:
        with session.begin_nested():
            session.add(row)
            session.flush()
    except IntegrityError:
        return session.exec(select(PostingRow).where(col(PostingRow.once) == row.once)).one()
    return row


def _handle() -> str:
    return secrets.token_urlsafe(18)


def _json(facts: Mapping[str, Any]) -> str:
    return msgspec.json.encode(facts).decode()


def _posting(session: Session, row: PostingRow) -> Posting:
    thread = row.thread_ts
    if row.parent is not None:
        head = session.get(PostingRow, row.parent)
        thread = head.ts if head is not None else None
    told = {name: getattr(row, name) for name in Posting.__dataclass_fields__ if name not in ("thread", "facts")}
    return Posting(**told, thread=thread, facts=msgspec.json.decode(row.facts))


def _parcel(session: Session, row: OutboxRow) -> Parcel:
    posting = session.get(PostingRow, row.posting_id) if row.posting_id is not None else None
    return Parcel(
        id=row.id or 0,
        key=row.key,
        tenant=row.tenant,
        method=row.method,
        payload=msgspec.json.decode(row.payload),
        state=row.state,
        tries=row.tries,
        created_at=row.created_at,
        posting=None if posting is None else _posting(session, posting),
    )
