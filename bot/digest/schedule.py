"""Publish the digest once a week.

The replica that claims the week computes and stores the numbers, and queues the message.

The claim, the numbers and the message are three transactions. If a replica dies in between, another one takes over
after a few minutes and continues from the stored numbers. The message and the end of the claim are one transaction,
so there is exactly one message.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec
import zstandard
from sqlmodel import Session, col, select

from bot.config.chat import Weekly
from bot.config.settings import Config
from bot.digest.codec import dumps
from bot.digest.phrases import zone_named
from bot.notify.outbox import enqueue_item
from bot.store.database import Database, StoreError
from bot.store.digest_rows import compute
from bot.store.leases import claim_period, complete_period
from bot.store.states import PostingState
from bot.store.tables import DigestRow, PostingRow
from kb.digest.weeks import DueDigest, due
from kb.rulebase.rule import FaultClass

FILES = "digest_files"  # outbox item that sends the files
KIND = "digest"  # prefix of the digest's claims and messages
LEASE = timedelta(minutes=5)  # a replica that has not completed a claimed week by then is considered dead
MOST = 64 << 20  # bytes of stored numbers
_log = logging.getLogger(__name__)


def tick(store: Database, config: Config, faults: Mapping[str, FaultClass], now: datetime, name: str) -> list[int]:
    """Publish the digests that are due. Return the ids of the new messages. Every replica calls it every minute.

    `name`: unique for each process. `faults`: the fault classes of the rule base.

    Raises:
        StoreError: the store cannot be used; the next tick retries.
    """
    made = []
    for tenant, settings in sorted(config.tenants_of_chat.items()):
        weekly = settings.digest
        if weekly is None:
            continue
        period = due(now, zone_named(settings.zone), weekly.weekday, weekly.hour)
        if period is not None and _claim(store, tenant, str(period.week), now, name):
            _keep(store, tenant, settings.zone, period, now=now, faults=faults)
            posting = _post(store, tenant, weekly, str(period.week), now=now, name=name)
            made += [posting] if posting is not None else []
    return made


def numbers_of(store: Database, tenant: str, week: str) -> bytes | None:
    """The stored numbers of a published digest; None if there are none."""
    with store.errors(), store.session() as session:
        row = session.get(DigestRow, (tenant, week))
        if row is None or row.numbers_zstd is None:
            return None
        return zstandard.decompress(row.numbers_zstd, max_output_size=MOST)


def _claim(store: Database, tenant: str, week: str, now: datetime, name: str) -> bool:
    """Whether this replica claimed the week: nobody had claimed it, or the replica that had is dead."""
    with store.errors(), store.session(write=True) as session:
        return claim_period(session, f"{KIND}:{tenant}", week, now=now, holder=name, lease=LEASE)


def _keep(
    store: Database,
    tenant: str,
    zone: str,
    period: DueDigest,
    *,
    now: datetime,
    faults: Mapping[str, FaultClass],
) -> None:
    """Compute and store the numbers, unless they are stored already. If our code fails, the id of the error is stored."""
    week = str(period.week)
    with store.errors(), store.session() as session:
        if session.get(DigestRow, (tenant, week)) is not None:
            return
    row = DigestRow(tenant=tenant, week=week, at=now)
    try:
        digest = compute(store, tenant, period.week, zone_named(zone), until=now, faults=faults, late=period.late)
        row.numbers_zstd = zstandard.compress(dumps(digest))
    except StoreError:
        raise
    except Exception:  # noqa: BLE001 - the digest is never silent: it says that it failed
        row.error = secrets.token_hex(4)
        _log.exception("error %s: the digest of %s for tenant %s failed", row.error, week, tenant)
    with store.errors(), store.session(write=True) as session:
        if session.get(DigestRow, (tenant, week)) is None:
            session.add(row)


def _post(store: Database, tenant: str, weekly: Weekly, week: str, *, now: datetime, name: str) -> int | None:
    """Queue the message and complete the claim; None if another replica has taken over the claim."""
    with store.errors(), store.session(write=True) as session:
        kept = session.get(DigestRow, (tenant, week))
        if kept is None or not complete_period(session, f"{KIND}:{tenant}", week, holder=name):
            return None
        return _posted(session, kept, weekly.channel, now)


def _posted(session: Session, kept: DigestRow, channel: str, now: datetime) -> int | None:
    once = f"{KIND}:{kept.tenant}:{kept.week}"
    there = session.exec(select(PostingRow.id).where(col(PostingRow.once) == once)).first()
    if there is not None:
        return None
    facts = {"week": kept.week} | ({} if kept.error is None else {"error": kept.error})
    row = PostingRow(
        handle=secrets.token_urlsafe(18),
        once=once,
        tenant=kept.tenant,
        channel=channel,
        state=PostingState.DIGEST,
        facts=msgspec.json.encode(facts).decode(),
        created_at=now,
        ready_at=now,
    )
    session.add(row)
    session.flush()
    if kept.error is None:
        enqueue_item(session, f"{FILES}:{row.id}", kept.tenant, FILES, {"week": kept.week}, now=now, posting=row.id)
    return row.id
