"""The digest of a week and repeat offenders, computed from the store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise

from sqlalchemy import func, inspect, select

from bot.runtime.collector import uncollected
from bot.runtime.redaction.structure import redacted
from bot.store.confirmed_fault import actually_failed
from bot.store.database import Database
from bot.store.digest_days import rows_of_days
from bot.store.digest_reading import rows_between
from bot.store.tables import IncidentRow
from bot.store.visibility import PUBLIC, visible
from kb.digest.digest import Digest, FaultTitle
from kb.digest.figures import figures, first_of
from kb.digest.repeat_offenders import Offenders, offenders
from kb.digest.rows import ends
from kb.digest.weeks import Week
from kb.rulebase.rule import FaultClass

MADE_UP = "made-up"  # the bundle of incidents that `signalbox demo --fill` makes up
AFTER = timedelta(days=14)  # reports from this long after the week may still show how its failures continued


def compute(
    store: Database,
    tenant: str,
    week: Week,
    zone: tzinfo,
    *,
    until: datetime,
    faults: Mapping[str, FaultClass],
    late: bool = False,
    by_hand: bool = False,
) -> Digest:
    """The digest of a week of a tenant, with the data known at a given time.

    `by_hand`: include what people diagnosed from files of no known cluster.

    Raises:
        StoreError: the store cannot be read.
    """
    classes = {name: FaultTitle(item.title, item.domain) for name, item in faults.items()}
    start = datetime.fromtimestamp(first_of(week).start(zone), UTC)
    last = min(until, datetime.fromtimestamp(week.end(zone), UTC) + AFTER)
    with uncollected():
        rows = rows_of_days(store, tenant, start, last, until=until, by_hand=by_hand)
        found = figures(rows, week, zone, until=until.timestamp(), classes=classes, tenant=tenant, late=late)
        del rows  # before the collector is back on, which would go through all of them
        made = _made_up(store, tenant, start, datetime.fromtimestamp(week.end(zone), UTC))
        return redacted(replace(found, made_up=made))


def _made_up(store: Database, tenant: str, start: datetime, end: datetime) -> int:
    """How many incidents of a time are made up; quick without any, since a store that has them began with them."""
    table = inspect(IncidentRow).local_table.c
    first = select(table.bundle).order_by(table.id).limit(1)
    count = select(func.count(table.id)).where(
        table.tenant == tenant, table.bundle == MADE_UP, table.created_at >= start, table.created_at < end
    )
    with store.errors(), store.session() as session:
        if session.connection().execute(first).scalar() != MADE_UP:
            return 0
        return int(session.connection().execute(count).scalar_one())


def lemons(store: Database, tenant: str, weeks: int, now: datetime, faults: Mapping[str, FaultClass]) -> Offenders:
    """Repeat offenders.

    The nodes of hardware and network failures in the last `weeks` weeks, counted as in the digest.

    Raises:
        StoreError: the store cannot be read.
    """
    span = timedelta(days=7)
    start = now - weeks * span
    domains = {name: item.domain for name, item in faults.items()}
    with uncollected(), store.errors(), store.session() as session:
        rows = [row for row in ends(rows_between(session, tenant, start, now, until=now)) if row.failed]
    begins = [(start + number * span).timestamp() for number in range(weeks + 1)]
    parts = [[row for row in rows if begin <= row.at < end] for begin, end in pairwise(begins)]
    return offenders(parts, domains)


def made_by_hand(store: Database, tenant: str, week: Week, zone: tzinfo) -> int:
    """The number of failures of a week that people diagnosed from files of no known cluster.

    Raises:
        StoreError: the store cannot be read.
    """
    start, end = (datetime.fromtimestamp(edge, UTC) for edge in (week.start(zone), week.end(zone)))
    table = inspect(IncidentRow).local_table.c
    ended = func.coalesce(table.ended_at, table.created_at)
    query = select(func.count(table.id)).where(
        table.tenant == tenant, table.cluster.is_(None), actually_failed(), ended >= start, ended < end,
        visible(PUBLIC),
    )  # fmt: skip
    with store.errors(), store.session() as session:
        return int(session.connection().execute(query).scalar_one())
