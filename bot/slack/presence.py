"""Who recently used Signalbox in which channel. Direct messages and the Home tab need this, because no channel vouches for a person there."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlmodel import col, select

from bot.store.database import Database
from bot.store.tables import PresenceRow

COUNTS = timedelta(days=7)  # how long a channel vouches for a person
AGAIN = timedelta(hours=1)  # minimum time between two writes for the same person and channel
MOST = 20_000  # pairs remembered


@dataclass(slots=True)
class Presence:
    """The channels in which people used Signalbox."""

    database: Database
    _written: dict[tuple[str, str], datetime] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, who: str, channel: str, now: datetime) -> None:
        """Record that a person used Signalbox in a channel."""
        pair = (who[:64], channel[:64])
        with self._lock:
            last = self._written.get(pair)
            if last is not None and now - last < AGAIN:
                return
            self._written.pop(pair, None)
            self._written[pair] = now
            while len(self._written) > MOST:
                del self._written[next(iter(self._written))]
        self.database.write(lambda session: session.merge(PresenceRow(who=pair[0], channel=pair[1], at=now)))

    def channels(self, who: str, now: datetime) -> Mapping[str, datetime]:
        """Return the channels that vouch for a person, with the time of the last use."""
        lately = select(PresenceRow).where(col(PresenceRow.who) == who, col(PresenceRow.at) > now - COUNTS)
        with self.database.errors(), self.database.session() as session:
            return {row.channel: row.at for row in session.exec(lately)}
