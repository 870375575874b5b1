"""Past days, packed for the digest: reading the reports of eight weeks takes longer than counting them.

A packed day holds what the digest reads of all reports of a day, in columns. Triggers of the database delete it when one of these
reports is added, changed or deleted, or when somebody says something about one (`migrations/versions/0012_digest_days.py`), so it
never differs from the tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from itertools import chain, groupby

import msgspec
import zstandard
from sqlalchemy import delete, func, inspect, select, text
from sqlmodel import Session

from bot.store.database import Database, StoreError
from bot.store.digest_reading import Names, ReportColumns, columns_between, rows_between
from bot.store.tables import DigestDayRow, IncidentRow
from kb.digest.rows import DigestRow

VERSION = 1  # of the packed form; days packed in another form are packed again
MANY = 5_000  # reports of days not packed, from which on packing pays
KEPT = timedelta(weeks=12)  # how long days are kept that lie before those asked for
_DAY, _INSTANT = timedelta(days=1), timedelta(microseconds=1)
_encode, _decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(ReportColumns).decode


def rows_of_days(
    store: Database, tenant: str, start: datetime, last: datetime, *, until: datetime, by_hand: bool = True
) -> list[DigestRow]:
    """The rows that `rows_between` gives for everybody. Many reports in days that are not packed are packed by this.

    Raises:
        StoreError: the store cannot be read.
    """
    days = _days(start, last)
    past = days[:-1]  # the last one may still go on
    with store.errors(), store.session() as session:
        packed = _packed(session, tenant, past)
        missing = [day for day in past if day not in packed]
        many = _count(session, tenant, missing) >= MANY
    for day in missing if many else ():
        columns = _pack(store, tenant, day, past[0])
        if columns is None:
            break
        packed[day] = columns
    heard = until.astimezone(UTC).replace(tzinfo=None)
    known = {day: item for day, item in packed.items() if item.latest is None or item.latest <= heard}
    rows: list[DigestRow] = []
    names = Names()
    with store.errors(), store.session() as session:
        for is_known, group in groupby(days, known.__contains__):
            if is_known:
                rows.extend(chain.from_iterable(known[day].rows(until, names) for day in group))
            else:
                unknown = list(group)
                begin, end = max(start, _midnight(unknown[0])), min(last, _midnight(unknown[-1] + _DAY) - _INSTANT)
                rows.extend(rows_between(session, tenant, begin, end, until=until))
    earliest, latest = start.timestamp(), last.timestamp()
    return [row for row in rows if earliest <= row.made <= latest and (by_hand or row.cluster is not None)]


def _days(start: datetime, last: datetime) -> list[date]:
    """The days between two times, by UTC, both included."""
    first = start.astimezone(UTC).date()
    return [first + number * _DAY for number in range((last.astimezone(UTC).date() - first).days + 1)]


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def _count(session: Session, tenant: str, days: Sequence[date]) -> int:
    """How many reports were created on these days, or between two of them."""
    if not days:
        return 0
    table = inspect(IncidentRow).local_table.c
    begin, end = _midnight(days[0]), _midnight(days[-1] + _DAY)
    query = select(func.count()).where(table.tenant == tenant, table.created_at >= begin, table.created_at < end)
    return int(session.connection().execute(query).scalar_one())


def _packed(session: Session, tenant: str, days: Sequence[date]) -> dict[date, ReportColumns]:
    """Those of the days that are packed."""
    if not days:
        return {}
    table = inspect(DigestDayRow).local_table.c
    query = select(table.day, table.columns_zstd).where(
        table.tenant == tenant, table.version == VERSION, table.day.between(str(days[0]), str(days[-1]))
    )
    found = session.connection().execute(query)
    return {date.fromisoformat(day): _decode(zstandard.decompress(data)) for day, data in found}


def _pack(store: Database, tenant: str, day: date, first: date) -> ReportColumns | None:
    """Pack a day, and forget those long before `first`. None if the store is read-only, or if others are writing."""
    table = inspect(DigestDayRow).local_table.c
    old = table.day < str(first - KEPT)
    try:
        with store.errors(), store.session(write=True) as session:
            connection = session.connection()
            if connection.dialect.name == "postgresql":
                # nobody writes meanwhile: a change that this transaction does not see would not delete the packed day
                connection.execute(text("LOCK TABLE incident, annotation IN SHARE MODE NOWAIT"))
            columns = columns_between(session, tenant, _midnight(day), _midnight(day + _DAY))
            session.execute(delete(DigestDayRow).where(table.tenant == tenant, old | (table.day == str(day))))
            data = zstandard.compress(_encode(columns))
            session.add(DigestDayRow(tenant=tenant, day=str(day), version=VERSION, columns_zstd=data))
    except StoreError:
        return None
    return columns
