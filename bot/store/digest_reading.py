"""Reads reports for the digest: two statements, columns only. No report is opened."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, DateTime, Select, inspect, or_, select, type_coerce
from sqlmodel import Session

from bot.render.text_format import cut, shown
from bot.runtime.redaction import redact
from bot.store.run_names import logs_name
from bot.store.tables import AnnotationRow, IncidentRow, UtcDateTime
from bot.store.visibility import PUBLIC, Viewer, visible
from kb.digest.rows import JUDGED, AttemptTimes, DigestRow

LONGEST = 100  # characters per name
_BATCH = 5_000
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - as times are read here
_COLUMNS = (
    "id", "created_at", "ended_at", "verdict", "phase", "job_id", "job_name", "chain", "attempt", "fault", "rule", "cluster",
    "owner", "partition", "framework", "image", "gpus", "width", "nodes", "runs", "gpu_hours_lost", "saving",
    "merged_into", "snoozed_until", "closed_at", "backfilled",
    "fingerprint", "bundle", "source", "reached", "reopened_at",
)  # fmt: skip
_NAMES = (
    "name",
    "fault",
    "rule",
    "cluster",
    "owner",
    "partition",
    "framework",
    "image",
    "said_fault",
)  # of a DigestRow
_LISTS = ("nodes", "said_nodes")
_WORDS = ("verdict", "phase", "cause", "judged")


@dataclass(slots=True)
class _Feedback:
    """Feedback of people on an incident, the latest of each kind."""

    closed: bool = False
    cause: str | None = None
    said_fault: str | None = None
    said_nodes: str = "[]"
    judged: str | None = None
    lost: float | None = None


class ReportColumns(msgspec.Struct, array_like=True):
    """Reports by the fields of `DigestRow`, as stored.

    `few`: fields with few different values: these values (lists of names as JSON), and for each report the place of its value among them.
    `rest`: the other fields but `runs`. Its `quiet` says only what was found in the past.
    `asleep`: the place of a report → until when it is snoozed, in seconds since the epoch.
    `latest`: when somebody last said something about one of them, in UTC.
    """

    few: dict[str, tuple[list[str | None], list[int]]]
    runs: list[tuple[AttemptTimes, ...]]
    rest: dict[str, Sequence[Any]]
    asleep: dict[int, float]
    latest: datetime | None = None

    def rows(self, until: datetime, names: Names) -> Iterator[DigestRow]:
        """The rows as they were at a time, with names that are safe to show."""
        quiet = list(self.rest["quiet"])
        for place, end in self.asleep.items():
            quiet[place] = quiet[place] or end > until.timestamp()
        columns: dict[str, Iterable[Any]] = {**self.rest, "runs": self.runs, "quiet": quiet}
        for field, (values, places) in self.few.items():
            columns[field] = map(names.of(field, values).__getitem__, places)
        return map(DigestRow._make, zip(*(columns[field] for field in DigestRow._fields), strict=True))


_STORED = {
    "job": "job_id",
    "name": "job_name",
    "redone": "gpu_hours_lost",
    "part_of": "merged_into",
}  # columns named otherwise
_PLAIN = ("id", "job", "chain", "attempt", "gpus", "width", "redone", "saving", "part_of")
_SAID = ("cause", "said_fault", "said_nodes", "judged")
_RUNS = msgspec.json.Decoder(tuple[AttemptTimes, ...])
_NOTHING = _Feedback()
_VERDICTS = (*JUDGED, "abstained_rightly")


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
    query = _query(tenant, start, last, viewer)
    if not by_hand:
        query = query.where(table.cluster.is_not(None))
    if cluster is not None:
        query = query.where(or_(table.cluster == cluster, table.cluster.is_(None)))
    order = (table.created_at, table.id)
    query = query.order_by(*order) if most is None else query.order_by(*(item.desc() for item in order)).limit(most)
    return list(_columns(session, query, until).rows(until, Names()))


def columns_between(session: Session, tenant: str, start: datetime, end: datetime) -> ReportColumns:
    """The reports created from `start` to before `end` that everybody sees, with all feedback."""
    table = inspect(IncidentRow).local_table.c
    query = _query(tenant, start, end, PUBLIC).where(table.created_at < end).order_by(table.created_at, table.id)
    return _columns(session, query, None)


def _query(tenant: str, start: datetime, last: datetime, viewer: Viewer) -> Select[Any]:
    table = inspect(IncidentRow).local_table.c
    return select(*(_plain(table[name]) for name in _COLUMNS)).where(
        table.tenant == tenant, table.created_at >= start, table.created_at <= last, visible(viewer)
    )


def _columns(session: Session, query: Select[Any], until: datetime | None) -> ReportColumns:
    # neither the ORM nor its rows are used, because they take as long as everything else together
    found = list(_raw(session, query))
    said, latest = _feedback(session, found, None if until is None else until.astimezone(UTC).replace(tzinfo=None))
    stored = dict(zip(_COLUMNS, zip(*found, strict=True) if found else [()] * len(_COLUMNS), strict=True))
    del found
    heard = [said.get(number, _NOTHING) for number in stored["id"]]
    made = list(map(_seconds, stored["created_at"]))
    ended = zip(stored["ended_at"], made, strict=True)
    asleep = enumerate(zip(stored["snoozed_until"], stored["closed_at"], strict=True))
    told = zip(
        *(stored[name] for name in ("job_id", "cluster", "fingerprint", "ended_at", "bundle", "reached")), strict=True
    )
    rest: dict[str, Sequence[Any]] = {
        **{field: stored[_STORED.get(field, field)] for field in _PLAIN},
        "made": made,
        "at": [before if end is None else min(_seconds(end), before) for end, before in ended],
        "quiet": list(map(bool, stored["backfilled"])),
        "evidence": [_evidence(*rest) if job is None and cluster is None else None for job, cluster, *rest in told],
        "closed": [one.closed for one in heard],
        "lost": [one.lost for one in heard],
    }
    few = {
        **{field: _coded(stored[_STORED.get(field, field)]) for field in _NAMES + _WORDS if field not in _SAID},
        **{field: _coded(getattr(one, field) for one in heard) for field in _SAID},
        "nodes": _coded(nodes or "[]" for nodes in stored["nodes"]),
        "name": _coded(map(_name, *(stored[name] for name in ("job_name", "job_id", "bundle", "source")))),
    }
    runs = [_RUNS.decode(runs or "[]") for runs in stored["runs"]]
    sleeping = {place: _seconds(end) for place, (end, closed) in asleep if end is not None and closed is None}
    return ReportColumns(few, runs, rest, sleeping, latest)


def _name(job: str | None, number: str | None, bundle: str | None, source: str | None) -> str | None:
    """The name of a job; of a run that was read from files, and has no number either, what was read."""
    return job or (None if number else logs_name(bundle, source) or None)


def _coded(column: Iterable[str | None]) -> tuple[list[str | None], list[int]]:
    """The different values of a column, and the place of each value among them."""
    places: dict[str | None, int] = {}
    coded = [places.setdefault(value, len(places)) for value in column]
    return list(places), coded


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


def _seconds(stored: datetime | str) -> float:
    """Seconds since the epoch, from a value of `_raw`."""
    return (_time(stored) - _EPOCH).total_seconds()


def _feedback(
    session: Session, found: Sequence[Sequence[Any]], now: datetime | None
) -> tuple[dict[int, _Feedback], datetime | None]:
    """What people said by then on the incidents of these raw rows, and when they last said something or reopened one.

    The statement reads a range of ids, since joining the table of incidents takes four times as long.
    """
    if not found:
        return {}, None
    reopened = {values[0]: _time(values[-1]) for values in found if values[-1] is not None}
    superseded = {number: at for number, at in reopened.items() if now is None or at <= now}
    latest = max(superseded.values(), default=None)
    table = inspect(AnnotationRow).local_table.c
    numbers = {values[0] for values in found}
    query = (
        select(
            table.incident_id, table.verdict, table.cause, table.fault, table.nodes, table.lost_hours, _plain(table.at)
        )
        .where(table.incident_id.between(min(numbers), max(numbers)))
        .order_by(table.incident_id, table.version)
    )
    if now is not None:
        query = query.where(table.at <= now.replace(tzinfo=UTC))
    said: dict[int, _Feedback] = {}
    for incident, verdict, cause, fault, nodes, lost, stored in _raw(session, query):
        if incident not in numbers:
            continue
        if now is None and (latest is None or _time(stored) > latest):
            latest = _time(stored)
        # feedback from before an incident was reopened no longer applies
        if incident in superseded and _time(stored) <= superseded[incident]:
            continue
        one = said.get(incident)
        if one is None:
            one = said[incident] = _Feedback()
        if cause is not None:
            one.closed, one.cause, one.said_fault, one.said_nodes = True, cause, fault, nodes
            one.lost = lost
        if verdict in _VERDICTS and cause != "unknown":
            one.judged = verdict
    return said, latest


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


class _Lists(dict[str, tuple[str, ...]]):
    """Lists of names by their JSON."""

    def __init__(self, clean: _Clean) -> None:
        super().__init__()
        self._clean = clean

    def __missing__(self, text: str) -> tuple[str, ...]:
        self[text] = tuple(
            dict.fromkeys(self._clean[item] or "?" for item in msgspec.json.decode(text, type=list[str]))
        )
        return self[text]


class Names:
    """How names are shown, each worked out once."""

    def __init__(self) -> None:
        self._single = _Clean()
        self._lists = _Lists(self._single)

    def of(self, field: str, values: Sequence[str | None]) -> Sequence[Any]:
        """The values of a field of `ReportColumns.few`, as a `DigestRow` has them."""
        if field in _LISTS:
            return [self._lists[value or "[]"] for value in values]
        return [self._single[value] for value in values] if field in _NAMES else values
