"""The rows of the digest out of the store: two statements, no report is opened."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Any

import msgspec
from sqlalchemy import inspect, select
from sqlmodel import Session, col

from bot.database import Database
from bot.redact import redact
from bot.tables import AnnotationRow, IncidentRow
from bot.wording import cut, shown
from kb.digest.figures import Class, Digest, figures, first_of
from kb.digest.rows import JUDGED, Row, Run
from kb.digest.weeks import Week
from kb.rule import FaultClass

AFTER = timedelta(days=14)  # reports of so long after the week may tell how its failures went on
LONGEST = 100  # characters of a name
_BATCH = 5_000
_COLUMNS = (
    "id", "created_at", "ended_at", "verdict", "phase", "job_id", "job_name", "chain", "attempt", "fault", "rule", "cluster",
    "owner", "partition", "framework", "image", "gpus", "width", "nodes", "runs", "gpu_hours_lost", "saving",
)  # fmt: skip


@dataclass(slots=True)
class _Said:
    """What people said of an incident, the last word of each kind."""

    closed: bool = False
    cause: str | None = None
    fault: str | None = None
    nodes: tuple[str, ...] = ()
    judged: str | None = None
    lost: float | None = None


_NOTHING = _Said()


def compute(
    store: Database,
    tenant: str,
    week: Week,
    zone: tzinfo,
    *,
    until: datetime,
    faults: Mapping[str, FaultClass],
    late: bool = False,
) -> Digest:
    """The digest of a week of a tenant, of what was known at a time.

    Raises:
        StoreError: the store cannot be read.
    """
    classes = {name: Class(one.title, one.domain) for name, one in faults.items()}
    with _uncollected():
        with store.errors(), store.session() as session:
            rows = rows_within(session, tenant, week, zone, until)
        return figures(rows, week, zone, until=until.timestamp(), classes=classes, tenant=tenant, late=late)


@contextmanager
def _uncollected() -> Iterator[None]:
    """No search for circles meanwhile: rows make none, and with a hundred thousand of them it takes a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def rows_within(session: Session, tenant: str, week: Week, zone: tzinfo, until: datetime) -> list[Row]:
    """The reports of a week and the seven before, each with what people had said of it by then."""
    start = datetime.fromtimestamp(first_of(week).start(zone), UTC)
    last = min(until, datetime.fromtimestamp(week.end(zone), UTC) + AFTER)
    said = _said(session, tenant, start, until)
    table = inspect(IncidentRow).local_table.c
    query = select(*(table[name] for name in _COLUMNS)).where(
        table.tenant == tenant, table.created_at >= start, table.created_at <= last
    )
    # not through the ORM, which takes as long as all the rest
    found = session.connection().execute(query.execution_options(yield_per=_BATCH))
    return [_row(one, said.get(one[0], _NOTHING)) for one in found]


def _said(session: Session, tenant: str, start: datetime, until: datetime) -> dict[int, _Said]:
    query = (
        select(
            col(AnnotationRow.incident_id),
            col(AnnotationRow.verdict),
            col(AnnotationRow.cause),
            col(AnnotationRow.fault),
            col(AnnotationRow.nodes),
            col(AnnotationRow.lost_hours),
        )
        .join(IncidentRow, col(IncidentRow.id) == col(AnnotationRow.incident_id))
        .where(col(IncidentRow.tenant) == tenant, col(IncidentRow.created_at) >= start, col(AnnotationRow.at) <= until)
        .order_by(col(AnnotationRow.incident_id), col(AnnotationRow.version))
    )
    found: dict[int, _Said] = {}
    for incident, verdict, cause, fault, nodes, lost in session.execute(query.execution_options(yield_per=_BATCH)):
        one = found.setdefault(incident, _Said())
        if cause is not None:
            one.closed, one.cause, one.fault, one.nodes = True, cause, fault, _names(nodes)
            one.lost = lost
        if verdict in (*JUDGED, "abstained_rightly") and cause != "unknown":
            one.judged = verdict
    return found


def _row(one: Sequence[Any], said: _Said) -> Row:
    """`one`: the values of `_COLUMNS`."""
    (
        number, created, ended, verdict, phase, job, name, chain, attempt, fault, rule, cluster, owner, partition, framework,
        image, gpus, width, nodes, runs, redone, saving,
    ) = one  # fmt: skip
    made = created.timestamp()
    return Row(
        id=number,
        at=made if ended is None else min(ended.timestamp(), made),
        made=made,
        verdict=verdict,
        phase=phase,
        job=job,
        name=_clean(name),
        chain=chain,
        attempt=attempt,
        fault=_clean(fault),
        rule=_clean(rule),
        cluster=_clean(cluster),
        owner=_clean(owner),
        partition=_clean(partition),
        framework=_clean(framework),
        image=_clean(image),
        gpus=gpus,
        width=width,
        nodes=_names(nodes or "[]"),
        runs=_runs(runs or "[]"),
        redone=redone,
        saving=saving,
        closed=said.closed,
        cause=said.cause,
        said_fault=_clean(said.fault),
        said_nodes=said.nodes,
        judged=said.judged,
        lost=said.lost,
    )


@lru_cache(maxsize=8192)
def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_clean(one) or "?" for one in msgspec.json.decode(text, type=list[str])))


@lru_cache(maxsize=8192)
def _clean(text: str | None) -> str | None:
    """A name that may be shown anywhere: no secrets, nothing that is not seen as it is, not without end."""
    return None if text is None else cut(shown(redact(text)), LONGEST)


_RUNS = msgspec.json.Decoder(tuple[Run, ...])


def _runs(text: str) -> tuple[Run, ...]:
    return () if text == "[]" else _RUNS.decode(text)
