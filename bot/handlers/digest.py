"""`/signalbox digest`: the current digest of a week, for the requester."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec
import zstandard
from sqlmodel import Session

from bot.config.settings import Config
from bot.digest.codec import dumps
from bot.digest.phrases import zone_named
from bot.notify.choices import add_choices
from bot.notify.requests import add_reply, pending_requests
from bot.queue.payloads import DigestPayload
from bot.queue.tasks import QueuedTask
from bot.queue.worker import TaskResult
from bot.store.database import Database
from bot.store.digest_rows import compute
from bot.store.tables import DigestRow
from kb.digest.weeks import week_named
from kb.rulebase.rule import FaultClass

FORM = "digest"


def compute_digest(store: Database, config: Config, faults: Mapping[str, FaultClass], work: QueuedTask) -> TaskResult:
    """Compute the digest, store the figures next to those of the weekly post, and reply to the requester."""
    order = msgspec.json.decode(work.payload, type=DigestPayload)
    now = datetime.now(UTC)
    tenant = config.tenants_of_chat.get(order.tenant)
    zone = zone_named(tenant.zone if tenant is not None else "UTC")
    digest = compute(store, order.tenant, week_named(order.week), zone, until=now, faults=faults)
    numbers, week = zstandard.compress(dumps(digest)), f"{order.week} asked"

    def write_reply(session: Session) -> str:
        session.merge(DigestRow(tenant=order.tenant, week=week, at=now, numbers_zstd=numbers))
        for request in pending_requests(session, work.id):
            (handle,) = add_choices(session, order.tenant, ["{}"], now)
            payload = {"form": FORM, "tenant": order.tenant, "week": week, "handle": handle}
            add_reply(session, request, payload, now)
        return f"digest of {order.week}"

    return TaskResult("", write_reply)
