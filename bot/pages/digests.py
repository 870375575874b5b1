"""Stored digests for the pages: captions of the latest one, its pictures and its page on request."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import zstandard
from sqlmodel import col, select

from bot.digest.charts import Caption, captions, drawn
from bot.digest.codec import loads
from bot.digest.html import page
from bot.digest.schedule import MOST
from bot.store.database import Database
from bot.store.tables import DigestRow
from kb.digest.digest import Digest
from kb.errors import SignalboxError

_PICTURE = re.compile(r"(pareto|trend|nodes)-(light|dark)\.svg")


@dataclass(frozen=True, slots=True)
class WeekPage:
    """A digest: the name of its week, the key of its stored figures, and the captions of its pictures."""

    name: str
    kept_as: str
    captions: tuple[Caption, ...]


@dataclass(frozen=True, slots=True)
class DigestPages:
    """The digests of one database."""

    store: Database

    def last(self, tenant: str) -> WeekPage | None:
        """Return the digest of a tenant's latest week, or None if no readable one is stored."""
        newest = select(DigestRow).where(col(DigestRow.tenant) == tenant, col(DigestRow.numbers_zstd).is_not(None))
        with self.store.errors(), self.store.session() as session:
            row = session.exec(newest.order_by(col(DigestRow.week).desc()).limit(1)).first()
            digest = None if row is None else _digest(row)
            kept_as = "" if row is None else row.week
        return None if digest is None else WeekPage(digest.week, kept_as, tuple(captions(digest)))

    def picture(self, tenant: str, week: str, name: str) -> str | None:
        """Return a picture as SVG by a name such as pareto-light.svg, or None if the digest has no such picture."""
        known = _PICTURE.fullmatch(name)
        if known is None:
            return None
        digest = self._numbers(tenant, week)
        if digest is None or all(caption.name != known[1] for caption in captions(digest)):
            return None
        return drawn(digest, known[1], "dark" if known[2] == "dark" else "light")

    def page(self, tenant: str, week: str, to: Callable[[int], str]) -> bytes | None:
        """Return the whole digest as a page, or None if it is no longer stored. `to`: returns the URL of an incident's page."""
        digest = self._numbers(tenant, week)
        return None if digest is None else page(digest, to)

    def _numbers(self, tenant: str, week: str) -> Digest | None:
        with self.store.errors(), self.store.session() as session:
            row = session.get(DigestRow, (tenant, week))
            return None if row is None else _digest(row)


def _digest(row: DigestRow) -> Digest | None:
    try:
        return loads(zstandard.decompress(row.numbers_zstd, max_output_size=MOST)) if row.numbers_zstd else None
    except (SignalboxError, zstandard.ZstdError):
        return None  # written by another version
