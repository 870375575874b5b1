"""Digests for the pages: captions of the latest one, its pictures and its page on request. They are stored, or made for one reader."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

import zstandard
from sqlmodel import col, select

from bot.digest.charts import Caption, captions, drawn
from bot.digest.codec import loads
from bot.digest.html import page
from bot.digest.schedule import MOST
from bot.store.database import Database
from bot.store.tables import DigestRow
from kb.digest.digest import Digest
from kb.digest.weeks import Week, week_named
from kb.errors import SignalboxError

FRESH = timedelta(minutes=5)  # how long computed figures are shown
_PICTURE = re.compile(r"(pareto|trend|nodes)-(light|dark)\.svg")


@dataclass(frozen=True, slots=True)
class WeekPage:
    """A digest: the name of its week, the key of its stored figures, and the captions of its pictures."""

    name: str
    kept_as: str
    captions: tuple[Caption, ...]


class DigestPages:
    """The digests that a service stored in a database."""

    def __init__(self, store: Database) -> None:
        self.store = store

    def last(self, tenant: str) -> WeekPage | None:
        """Return the digest of a tenant's latest week, or None if no readable one is stored."""
        newest = select(DigestRow).where(col(DigestRow.tenant) == tenant, col(DigestRow.numbers_zstd).is_not(None))
        with self.store.errors(), self.store.session() as session:
            row = session.exec(newest.order_by(col(DigestRow.week).desc()).limit(1)).first()
            digest = None if row is None else _digest(row)
            kept_as = "" if row is None else row.week
        return None if digest is None else _week_page(digest, kept_as)

    def numbers(self, tenant: str, week: str) -> Digest | None:
        """Return the figures of a digest, or None if it is no longer stored."""
        with self.store.errors(), self.store.session() as session:
            row = session.get(DigestRow, (tenant, week))
            return None if row is None else _digest(row)

    def picture(self, tenant: str, week: str, name: str) -> str | None:
        """Return a picture as SVG by a name such as pareto-light.svg, or None if the digest has no such picture."""
        known = _PICTURE.fullmatch(name)
        if known is None:
            return None
        digest = self.numbers(tenant, week)
        if digest is None or all(caption.name != known[1] for caption in captions(digest)):
            return None
        return drawn(digest, known[1], "dark" if known[2] == "dark" else "light")

    def page(self, tenant: str, week: str, to: Callable[[int | None], str]) -> bytes | None:
        """Return the whole digest as a page, or None if it is no longer stored. `to`: returns the URL of an incident's page, of the list for None."""
        digest = self.numbers(tenant, week)
        return None if digest is None else page(digest, to, to(None))


class ComputedDigests(DigestPages):
    """The digest of the last full week, for a store in which a service keeps none. Computed again after a while.

    `compute`: returns the figures of a tenant's week at a time; `latest`: the week whose digest to show at a time.
    """

    def __init__(
        self,
        store: Database,
        compute: Callable[[str, Week, datetime], Digest],
        latest: Callable[[datetime], Week],
        now: Callable[[], datetime],
    ) -> None:
        super().__init__(store)
        self._compute, self._latest, self._now = compute, latest, now
        self._made: dict[tuple[str, str], tuple[datetime, Digest]] = {}

    def last(self, tenant: str) -> WeekPage | None:
        """Return the digest of the last full week, or None if nothing is known of it."""
        week = str(self._latest(self._now()))
        digest = self.numbers(tenant, week)
        return None if digest is None else _week_page(digest, week)

    def numbers(self, tenant: str, week: str) -> Digest | None:
        """Return the figures of a week, or None if nothing is known of it."""
        now = self._now()
        made = self._made.get((tenant, week))
        if made is not None and now - made[0] < FRESH:
            return made[1]
        digest = self._compute(tenant, week_named(week), now)
        if not digest.failures:
            return None
        self._made[tenant, week] = now, digest
        return digest


def _week_page(digest: Digest, kept_as: str) -> WeekPage:
    return WeekPage(digest.week, kept_as, tuple(captions(digest)))


def _digest(row: DigestRow) -> Digest | None:
    try:
        return loads(zstandard.decompress(row.numbers_zstd, max_output_size=MOST)) if row.numbers_zstd else None
    except (SignalboxError, zstandard.ZstdError):
        return None  # written by another version
