"""Rows for the digest, read from the store with two statements. No report is opened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from itertools import pairwise
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, DateTime, Select, func, inspect, or_, select, type_coerce
from sqlmodel import Session

from bot.render.text_format import cut, shown
from bot.runtime.collector import uncollected
from bot.runtime.redaction import redact
from bot.runtime.redaction.structure import redacted
from bot.store.database import Database
from bot.store.tables import AnnotationRow, IncidentRow, UtcDateTime
from bot.store.visibility import PUBLIC, Viewer, visible
from kb.digest.digest import Digest, FaultTitle
from kb.digest.figures import figures, first_of
from kb.digest.repeat_offenders import Offenders, offenders
from kb.digest.rows import JUDGED, AttemptTimes, DigestRow, ends
from kb.digest.weeks import Week
from kb.model import NOT_FAILED
from kb.rulebase.rule import FaultClass

AFTER = timedelta(days=14)  # reports from this long after the week may still show how its failures continued
LONGEST = 100  # characters per name
_BATCH = 5_000
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - as times are read here
_COLUMNS = (
    "id", "created_at", "ended_at", "verdict", "phase", "job_id", "job_name", "chain", "attempt", "fault", "rule", "cluster",
    "owner", "partition", "framework", "image", "gpus", "width", "nodes", "runs", "gpu_hours_lost", "saving",
    "merged_into", "snoozed_until", "closed_at", "backfilled",
    "fingerprint", "bundle", "reached", "reopened_at",
)  # fmt: skip


@dataclass(slots=True)
class _Feedback:
    """Feedback of people on an incident, the latest of each kind."""

    closed: bool = False
    cause: str | None = None
    fault: str | None = None
    nodes: tuple[str, ...] = ()
    judged: str | None = None
    lost: float | None = None


_NOTHING = _Feedback()
_VERDICTS = (*JUDGED, "abstained_rightly")


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
    with uncollected():
        with store.errors(), store.session() as session:
            rows = rows_within(session, tenant, week, zone, until, by_hand=by_hand)
        found = figures(rows, week, zone, until=until.timestamp(), classes=classes, tenant=tenant, late=late)
        del rows  # before the collector is back on, which would go through all of them
        return redacted(found)


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
        table.tenant == tenant, table.cluster.is_(None), table.verdict.not_in(NOT_FAILED), ended >= start, ended < end,
        visible(PUBLIC),
    )  # fmt: skip
    with store.errors(), store.session() as session:
        return int(session.connection().execute(query).scalar_one())


def rows_within(
    session: Session, tenant: str, week: Week, zone: tzinfo, until: datetime, *, by_hand: bool = True
) -> list[DigestRow]:
    """The reports of a week and of the seven weeks before, each with the feedback given by then."""
    start = datetime.fromtimestamp(first_of(week).start(zone), UTC)
    last = min(until, datetime.fromtimestamp(week.end(zone), UTC) + AFTER)
    return rows_between(session, tenant, start, last, until=until, by_hand=by_hand)


def rows_between(
    session: Session,
    tenant: str,
    start: datetime,
    last: datetime,
    *,
    until: datetime,
    cluster: str | None = None,
    most: int | None = None,
    viewer: Viewer = PUBLIC,
    by_hand: bool = True,
) -> list[DigestRow]:
    """The reports created from `start` to `last` that the viewer sees, each with the feedback given before `until`.

    `cluster`: only this cluster, and reports without a cluster; `most`: at most this many, the newest.
    `by_hand`: also reports without a cluster, which people made from files.
    """
    table = inspect(IncidentRow).local_table.c
    query = select(*(_plain(table[name]) for name in _COLUMNS)).where(
        table.tenant == tenant, table.created_at >= start, table.created_at <= last, visible(viewer)
    )
    if not by_hand:
        query = query.where(table.cluster.is_not(None))
    if cluster is not None:
        query = query.where(or_(table.cluster == cluster, table.cluster.is_(None)))
    if most is not None:
        query = query.order_by(table.created_at.desc(), table.id.desc()).limit(most)
    # neither the ORM nor its rows are used, because they take as long as everything else together
    found = list(_raw(session, query))
    now = until.astimezone(UTC).replace(tzinfo=None)
    said = _feedback(session, found, now)
    clean = _Clean()
    row = partial(_row, now=now, clean=clean, names=_Names(clean))
    for place, values in enumerate(found):
        found[place] = row(values, said.get(values[0], _NOTHING))  # in place, so that each raw row is freed
    return found


def _raw(session: Session, query: Select[Any]) -> Iterator[Any]:
    """The rows as the database driver returns them: tuples, with SQLite's times as text and its truth values as integers."""
    cursor = (
        session.connection().execute(query).cursor
    )  # with `yield_per`, SQLAlchemy would fetch the first rows itself
    if cursor is None:
        raise TypeError("the statement returns no rows")
    while part := cursor.fetchmany(_BATCH):
        yield from part


def _plain(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """A time as stored: UTC without a zone. Adding a zone to 200,000 values is slow."""
    return type_coerce(column, DateTime) if isinstance(column.type, UtcDateTime) else column


def _time(stored: datetime | str) -> datetime:
    """UTC without a zone, from a value of `_raw`."""
    return datetime.fromisoformat(stored) if isinstance(stored, str) else stored


def _feedback(session: Session, found: Sequence[Sequence[Any]], now: datetime) -> dict[int, _Feedback]:
    """What people said by then on the incidents of these raw rows.

    The statement reads a range of ids, since joining the table of incidents takes four times as long.
    """
    if not found:
        return {}
    numbers = [values[0] for values in found]
    superseded = {values[0]: at for values in found if values[-1] is not None and (at := _time(values[-1])) <= now}
    table = inspect(AnnotationRow).local_table.c
    query = (
        select(
            table.incident_id, table.verdict, table.cause, table.fault, table.nodes, table.lost_hours, _plain(table.at)
        )
        .where(table.incident_id.between(min(numbers), max(numbers)), table.at <= now.replace(tzinfo=UTC))
        .order_by(table.incident_id, table.version)
    )
    names, said = _Names(_Clean()), dict[int, _Feedback]()
    for incident, verdict, cause, fault, nodes, lost, at in _raw(session, query):
        # feedback from before an incident was reopened no longer applies
        if incident in superseded and _time(at) <= superseded[incident]:
            continue
        one = said.get(incident)
        if one is None:
            one = said[incident] = _Feedback()
        if cause is not None:
            one.closed, one.cause, one.fault, one.nodes = True, cause, fault, names[nodes]
            one.lost = lost
        if verdict in _VERDICTS and cause != "unknown":
            one.judged = verdict
    return said


def _row(values: Sequence[Any], said: _Feedback, *, now: datetime, clean: _Clean, names: _Names) -> DigestRow:
    """`values`: those of `_COLUMNS` as `_raw` yields them; `now` in UTC without a zone."""
    (
        number, created, ended, verdict, phase, job, name, chain, attempt, fault, rule, cluster, owner, partition, framework,
        image, gpus, width, nodes, runs, redone, saving, part_of, asleep, closed, past, kind, bundle, reached, _,
    ) = values  # fmt: skip
    made = at = (_time(created) - _EPOCH).total_seconds()
    if ended is not None:
        at = min((_time(ended) - _EPOCH).total_seconds(), made)
    # positional arguments: with thirty keywords, a hundred thousand calls take half a second longer
    return DigestRow(
        number, at, made, verdict, phase, job, clean[name], chain, attempt, clean[fault], clean[rule], clean[cluster],
        clean[owner], clean[partition], clean[framework], clean[image], gpus, width, names[nodes or "[]"],
        _runs(runs or "[]"), redone, saving, said.closed, said.cause, clean[said.fault], said.nodes, said.judged, said.lost,
        part_of, bool(past) or (asleep is not None and closed is None and _time(asleep) > now),
        _evidence(kind, ended, bundle, reached) if job is None and cluster is None else None,
    )  # fmt: skip


def _evidence(kind: str, ended: datetime | str | None, bundle: str | None, reached: int | None) -> str | None:
    """The same for all reports on one failure of a job without an id; None if that cannot be told.

    `kind`: the fingerprint of the failure. Of logs without a time, the folder tells, and the iteration that the run reached.
    """
    if ended is not None:
        return f"{kind} {_time(ended)}"
    return f"{kind} {bundle} {reached}" if bundle is not None else None


class _Clean(dict[str | None, str | None]):
    """Names that are safe to show, by the stored ones: secrets redacted, unprintable characters escaped, bounded length."""

    def __missing__(self, text: str | None) -> str | None:
        self[text] = None if text is None else cut(shown(redact(text)), LONGEST)
        return self[text]


class _Names(dict[str, tuple[str, ...]]):
    """Lists of names by their JSON."""

    def __init__(self, clean: _Clean) -> None:
        super().__init__()
        self._clean = clean

    def __missing__(self, text: str) -> tuple[str, ...]:
        self[text] = tuple(
            dict.fromkeys(self._clean[item] or "?" for item in msgspec.json.decode(text, type=list[str]))
        )
        return self[text]


_RUNS = msgspec.json.Decoder(tuple[AttemptTimes, ...])


def _runs(text: str) -> tuple[AttemptTimes, ...]:
    return () if text == "[]" else _RUNS.decode(text)
