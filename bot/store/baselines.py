"""Baselines: successful runs that failed runs are compared with, one per family of jobs.

A family is identified by the job name without its variable parts, the framework and the image. A baseline is small:
the words of each event and how often it occurred, no log lines. If a family has no baseline, one of the same name and
framework in another image is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import msgspec
import zstandard
from sqlalchemy import func, select
from sqlmodel import Session, col

from bot.runtime.paths import DEFAULT_TENANT
from bot.runtime.redaction import redact
from bot.store.database import Database, StoreError
from bot.store.tables import BaselineRow
from kb.anomalies.runs.baseline_diff import Baseline
from kb.model import Job
from kb.templates.template import VERSION

MOST_FAMILIES = 500  # baselines per tenant
LONGEST_NAME = 100
LONGEST_LABEL = 500
MOST_EVENTS = 20_000
MOST_BYTES = 32 * 1024 * 1024  # bytes of one baseline, unpacked
_CHANGING = re.compile(
    r"(?i)[-_.](?:v\d[\w.]*|\d[\d.]*|[0-9a-f]{6,}|(?:run|try|attempt|retry|resume)\d*|small|debug|test)$"
)


class _StoredBaseline(msgspec.Struct, frozen=True):
    """A baseline as stored: the words of each event, its line count, node count, and most lines on one node.

    `apart`: the words of lines in which one rank differs; `steps`: the words of what counts steps, and which of its numbers does; `interludes`: the
    words of each line of an evaluation or a save, and what is under way after it;
    `moving`: as `steps`, the numbers that move on one rank only.
    """

    events: list[tuple[str, int, int, int]]
    nodes: int
    lines: int
    order: list[int]
    settings: dict[str, str]
    apart: list[str] = []
    steps: list[tuple[str, int]] = []
    interludes: list[tuple[str, str]] = []
    moving: list[tuple[str, int]] = []


@dataclass(frozen=True, slots=True)
class BaselineEntry:
    """A baseline in a list. `family`: see `family_of`; `label`: the run that it comes from; `bytes`: the size of the baseline."""

    family: str
    label: str
    at: datetime
    bytes: int
    readable: bool = True


def family_of(job: Job) -> str | None:
    """The family of a job; None if the job has no name."""
    name = (job.name or "").strip().replace("|", "_")
    if not name:
        return None
    while True:
        shorter = _CHANGING.sub("", name)
        if not shorter or shorter == name:
            break
        name = shorter
    framework = (job.framework or "").replace("|", "_")
    return f"{name[:LONGEST_NAME]}|{framework[:40]}|{job.image or ''}"[:200]


def keep(database: Database, family: str, good: Baseline, at: datetime, *, tenant: str = DEFAULT_TENANT) -> None:
    """Store the baseline of a family and replace the previous one.

    The oldest families are removed if there are too many.

    Raises:
        StoreError: the store cannot be used.
    """
    data = zstandard.compress(packed(good))

    def write(session: Session) -> None:
        row = session.get(BaselineRow, (tenant, family))
        if row is None:
            _make_room(session, tenant)
            row = BaselineRow(tenant=tenant, family=family, at=at, label="", version=VERSION, events_zstd=b"")
        row.at, row.label, row.version, row.events_zstd = at, good.label[:LONGEST_LABEL], VERSION, data
        session.add(row)

    database.write(write)


def _make_room(session: Session, tenant: str) -> None:
    own = select(BaselineRow).where(col(BaselineRow.tenant) == tenant)
    for row in session.scalars(own.order_by(col(BaselineRow.at).desc()).offset(MOST_FAMILIES - 1)):
        session.delete(row)


def find(database: Database, family: str, *, tenant: str = DEFAULT_TENANT) -> Baseline | None:
    """The baseline of a family, or the newest of the same name and framework; None if none can be read.

    Raises:
        StoreError: the store cannot be used.
    """
    name, _, _ = family.rpartition("|")
    with database.errors(), database.session() as session:
        row = session.get(BaselineRow, (tenant, family))
        if row is None or row.version != VERSION:
            near = select(BaselineRow).where(
                col(BaselineRow.tenant) == tenant,
                col(BaselineRow.family).startswith(f"{name}|", autoescape=True),
                col(BaselineRow.version) == VERSION,
            )
            row = session.scalars(near.order_by(col(BaselineRow.at).desc()).limit(1)).first()
        if row is None:
            return None
        try:
            data = zstandard.ZstdDecompressor().decompress(row.events_zstd, max_output_size=MOST_BYTES)
            return unpacked(data, row.label)
        except (zstandard.ZstdError, msgspec.DecodeError, IndexError) as error:
            raise StoreError(f"the baseline of {family!r} cannot be read: {error}") from error


def finder(database: Callable[[], Database], tenant: str) -> Callable[[Job], Baseline | None]:
    """A function that finds the baseline for a job. It opens the database on the first call."""

    def found(job: Job) -> Baseline | None:
        family = family_of(job)
        return None if family is None else find(database(), family, tenant=tenant)

    return found


def listed(database: Database, tenant: str, most: int = 1000) -> tuple[BaselineEntry, ...]:
    """The baselines of a tenant, newest first.

    Raises:
        StoreError: the store cannot be used.
    """
    size = func.length(col(BaselineRow.events_zstd))
    query = (
        select(col(BaselineRow.family), col(BaselineRow.label), col(BaselineRow.at), size, col(BaselineRow.version))
        .where(col(BaselineRow.tenant) == tenant)
        .order_by(col(BaselineRow.at).desc(), col(BaselineRow.family))
    )
    with database.errors(), database.session() as session:
        found = session.execute(query.limit(most)).all()
        return tuple(
            BaselineEntry(family, label, at, count, version == VERSION) for family, label, at, count, version in found
        )


def drop(database: Database, family: str, *, tenant: str = DEFAULT_TENANT) -> bool:
    """Remove the baseline of a family. Return whether there was one.

    Raises:
        StoreError: the store cannot be used.
    """

    def forget(session: Session) -> bool:
        row = session.get(BaselineRow, (tenant, family))
        if row is not None:
            session.delete(row)
        return row is not None

    return database.write(forget)


def packed(good: Baseline) -> bytes:
    """A baseline as JSON, with its settings redacted. If it has too many events, only the most frequent are kept."""
    keys = sorted(good.counts, key=lambda count: (-good.counts[count][1], -good.counts[count][0], count))[:MOST_EVENTS]
    place = {key: index for index, key in enumerate(keys)}
    events = [(" ".join(key), *good.counts[key]) for key in keys]
    order = [place[key] for key in good.order if key in place]
    settings = {name: redact(value) for name, value in (good.settings or {}).items()}
    apart = sorted(" ".join(words) for words in good.apart)[:MOST_EVENTS]
    steps = [(" ".join(words), at) for words, at in sorted(good.steps.items())][:MOST_EVENTS]
    between = [(" ".join(words), stage) for words, stage in sorted(good.interludes.items())][:MOST_EVENTS]
    moving = [(" ".join(words), at) for words, at in sorted(good.moving)][:MOST_EVENTS]
    stored = _StoredBaseline(events, good.nodes, good.lines, order, settings, apart, steps, between, moving)
    return msgspec.json.encode(stored)


def unpacked(data: bytes, label: str = "") -> Baseline:
    """A baseline from JSON."""
    kept = msgspec.json.decode(data, type=_StoredBaseline)
    keys = [tuple(words.split()) for words, *_ in kept.events]
    counts = {key: (lines, nodes, most) for key, (_, lines, nodes, most) in zip(keys, kept.events, strict=True)}
    order, apart = (keys[index] for index in kept.order), (tuple(words.split()) for words in kept.apart)
    steps = {tuple(words.split()): at for words, at in kept.steps}
    between = {tuple(words.split()): stage for words, stage in kept.interludes}
    moving = frozenset((tuple(words.split()), at) for words, at in kept.moving)
    return Baseline(
        counts,
        kept.nodes,
        kept.lines,
        label,
        tuple(order),
        kept.settings,
        "",
        frozenset(apart),
        steps,
        between,
        moving,
    )
