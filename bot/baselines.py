"""Good runs that failed ones are compared with, one for each family of jobs, kept in the store.

A family is told by the job's name without what changes from run to run, and its framework. What is kept is small: the words of
each event and how often it came, never a line.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec
import zstandard

from bot.database import Database, StoreError
from bot.redact import redact
from bot.settings import DEFAULT_TENANT
from bot.tables import BaselineRow
from kb.l4.cross import Baseline
from kb.model import Job
from kb.templates.table import VERSION

if TYPE_CHECKING:
    from sqlmodel import Session

MOST_EVENTS = 20_000
MOST_BYTES = 32 * 1024 * 1024  # of one, unpacked
_CHANGING = re.compile(
    r"(?i)[-_.](?:v\d[\w.]*|\d[\d.]*|[0-9a-f]{6,}|(?:run|try|attempt|retry|resume)\d*|small|debug|test)$"
)


class _Kept(msgspec.Struct, frozen=True):
    """A baseline as it is written: each event as its words, lines, nodes and most lines on one node."""

    events: list[tuple[str, int, int, int]]
    nodes: int
    lines: int
    order: list[int]
    settings: dict[str, str]


def family_of(job: Job) -> str | None:
    """The family of a job; None where it has no name."""
    name = (job.name or "").strip()
    if not name:
        return None
    while True:
        shorter = _CHANGING.sub("", name)
        if not shorter or shorter == name:
            break
        name = shorter
    return f"{name}|{job.framework or ''}"[:200]


def keep(database: Database, family: str, good: Baseline, at: datetime, *, tenant: str = DEFAULT_TENANT) -> None:
    """Keep a good run as its family's, in place of the one before.

    Raises:
        StoreError: the store cannot be used.
    """
    data = zstandard.compress(packed(good))

    def write(session: Session) -> None:
        row = session.get(BaselineRow, (tenant, family))
        if row is None:
            row = BaselineRow(tenant=tenant, family=family, at=at, label="", version=VERSION, events_zstd=b"")
        row.at, row.label, row.version, row.events_zstd = at, good.label, VERSION, data
        session.add(row)

    database.write(write)


def find(database: Database, family: str, *, tenant: str = DEFAULT_TENANT) -> Baseline | None:
    """The good run of a family; None where there is none, or one that this version cannot read.

    Raises:
        StoreError: the store cannot be used.
    """
    with database.errors(), database.session() as session:
        row = session.get(BaselineRow, (tenant, family))
        if row is None or row.version != VERSION:
            return None
        try:
            data = zstandard.ZstdDecompressor().decompress(row.events_zstd, max_output_size=MOST_BYTES)
            return unpacked(data, row.label)
        except (zstandard.ZstdError, msgspec.DecodeError, IndexError) as error:
            raise StoreError(f"the good run of {family!r} cannot be read: {error}") from error


def packed(good: Baseline) -> bytes:
    """A good run as JSON, its settings redacted; the most usual events where there are too many."""
    keys = sorted(good.counts, key=lambda one: (-good.counts[one][1], -good.counts[one][0], one))[:MOST_EVENTS]
    place = {key: index for index, key in enumerate(keys)}
    events = [(" ".join(key), *good.counts[key]) for key in keys]
    order = [place[key] for key in good.order if key in place]
    settings = {name: redact(value) for name, value in (good.settings or {}).items()}
    return msgspec.json.encode(_Kept(events, good.nodes, good.lines, order, settings))


def unpacked(data: bytes, label: str = "") -> Baseline:
    """A good run from JSON."""
    kept = msgspec.json.decode(data, type=_Kept)
    keys = [tuple(words.split()) for words, *_ in kept.events]
    counts = {key: (lines, nodes, most) for key, (_, lines, nodes, most) in zip(keys, kept.events, strict=True)}
    return Baseline(counts, kept.nodes, kept.lines, label, tuple(keys[index] for index in kept.order), kept.settings)
