"""Stored rule drafts: requested, mined and tested by a worker, edited by a person, proposed.

A draft is a row. Each request raises its version, and a worker processes it. Duplicate deliveries and workers that
die are harmless: the handle of the draft is derived from the request, and the result is written when the task
completes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any, Literal

import msgspec
import zstandard
from sqlalchemy.exc import IntegrityError
from sqlmodel import Session, col, select

from bot.queue.tasks import TaskRequest, enqueue_task
from bot.store.database import Database
from bot.store.tables import DraftRow

DRAFT = "draft"
_LARGEST = 16 << 20  # bytes after unpacking
State = Literal["asked", "drafted", "refused", "proposed"]
Then = Literal["show", "propose"]


class DraftEdits(msgspec.Struct, frozen=True):
    """A person's edits. `regexes`: None if the form did not ask for them; `fault`: None keeps the fault.

    `force`: propose it even if the backtest advises against it.
    """

    title: str = ""
    fault: str | None = None
    regexes: tuple[str, ...] | None = None
    silent: tuple[str, ...] = ()
    remediation: tuple[str, ...] = ()
    owner: str = ""
    force: bool = msgspec.field(default=False, name="all_the_same")  # the name used in drafts that are already stored


class DraftRequest(msgspec.Struct, frozen=True):
    """A request for a draft: show it again, or propose it. `edits`: None if nobody has changed anything."""

    then: Then = "show"
    edits: DraftEdits | None = None


class DraftContent(msgspec.Struct, frozen=True):
    """A draft with its replay.

    `files`: by path below the rules folder. `edits`: the current values of the parts that a person may change. `looks_for`: what
    the rule looks for, in words. `lines`, `figures`, `hurts`, `notes`, `patterns`, `incidents`: see
    bot.learning.proposals.store.ProposedRule. `key`: the fingerprint of its patterns. `reasons`: why there is no draft; then
    all other fields are empty. `questions`: what a reviewer should add. `edge`: figures on the incidents left out, rewordings of the event and other failures.
    `against`: what these say against the patterns as they were drafted; with the findings of the replay, `hurts` holds it.
    """

    rule: str = ""
    key: str = ""
    edits: DraftEdits = DraftEdits()
    files: dict[str, bytes] = {}
    looks_for: str = ""
    patterns: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    figures: tuple[tuple[str, str], ...] = ()
    hurts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    incidents: tuple[int, ...] = ()
    why: str = ""
    passed: bool = False
    reasons: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()
    edge: tuple[tuple[str, str], ...] = ()
    against: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Draft:
    """A stored draft; see DraftRow."""

    handle: str
    tenant: str
    incident_id: int
    who: str
    channel: str
    parent: int | None
    state: State
    version: int
    wish: DraftRequest
    content: DraftContent | None
    at: datetime


def handle_of(key: str) -> str:
    """Return the handle of the draft for a delivery. Two deliveries of one click have the same handle."""
    return f"d{sha256(key.encode()).hexdigest()[:32]}"


def ask_draft_within(
    session: Session, key: str, tenant: str, incident: int, *, who: str, channel: str, parent: int | None, now: datetime
) -> tuple[str, bool]:
    """Store a request to draft a rule from an incident. Return its handle, and whether it is new."""
    handle = handle_of(key)
    row = DraftRow(
        handle=handle, tenant=tenant, incident_id=incident, who=who[:128], channel=channel, parent=parent,
        wish=_json(DraftRequest()), at=now,
    )  # fmt: skip
    if session.get(DraftRow, handle) is not None:
        return handle, False
    try:
        with session.begin_nested():
            session.add(row)
            session.flush()
    except IntegrityError:
        return handle, False  # the other delivery was first
    _work_within(session, row, now)
    return handle, True


def wish_draft_within(
    session: Session, handle: str, tenant: str, *, version: int, wish: DraftRequest, now: datetime
) -> bool:
    """Store a request for a draft at `version`. Return whether it was the first to be accepted."""
    row = session.exec(
        select(DraftRow).where(col(DraftRow.handle) == handle, col(DraftRow.tenant) == tenant).with_for_update()
    ).first()
    if row is None or row.version != version or row.state == "proposed":
        return False
    row.version += 1
    row.wish = _json(wish)
    session.add(row)
    _work_within(session, row, now)
    return True


def draft_of(database: Database, handle: str) -> Draft | None:
    """Return a draft by handle, or None."""
    with database.errors(), database.session() as session:
        row = session.get(DraftRow, handle)
        return None if row is None else _draft(row)


def made_within(session: Session, draft: Draft, state: State, content: DraftContent) -> bool:
    """Store the result of a request. Return whether no newer request arrived in the meantime."""
    row = session.get(DraftRow, draft.handle, with_for_update=True)
    if row is None or row.version != draft.version:
        return False
    row.state, row.content_zstd = state, zstandard.compress(msgspec.json.encode(content))
    session.add(row)
    session.flush()
    return True


def _work_within(session: Session, row: DraftRow, now: datetime) -> None:
    order = _json({"draft": row.handle})
    enqueue_task(session, TaskRequest(DRAFT, f"{DRAFT}:{row.handle}:{row.version}", row.tenant, order), now, 0.0)


def _draft(row: DraftRow) -> Draft:
    packed = row.content_zstd
    content = None
    if packed is not None:
        plain = zstandard.decompress(packed, max_output_size=_LARGEST)
        content = msgspec.json.decode(plain, type=DraftContent)
    document: Mapping[str, Any] = {
        name: getattr(row, name) for name in Draft.__dataclass_fields__ if name not in ("wish", "content")
    }
    return Draft(**document, wish=msgspec.json.decode(row.wish, type=DraftRequest), content=content)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
