"""New lines of a job from Loki as they arrive, by its WebSocket (`/loki/api/v1/tail`).

The lines are written like those of a query: unwrapped, with cut lines joined and the store's time. A line that was also fetched
by a query is therefore identical. A connection lasts until the server's `tail_max_duration`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec

from connectors.base.contract import Deadline, SourceFailed, Spool
from connectors.base.http import HttpClient, HttpRequest, url_path
from connectors.base.websocket import WebSocket, websocket
from connectors.log_stores.line_buffer import LineBuffer, StoredLine
from connectors.log_stores.logql import Labels, selector
from connectors.log_stores.loki_queries import CATEGORIES
from connectors.log_stores.store_queries import NS
from kb.model import Gap

OPENING = 10.0  # seconds
TOGETHER = 0.2  # seconds for which lines are gathered once the first has come
KEPT = 60 * NS  # of received lines, so that the pieces of a cut line find each other
MOST_KEPT = 20_000  # lines
LIMIT = 1000  # lines from before the connection
Lines = Callable[[Mapping[str, Any]], Iterator[StoredLine]]


class LokiTail:
    """An open tail of one job."""

    def __init__(self, socket: WebSocket, lines: Lines, folder: str) -> None:
        self._socket = socket
        self._lines = lines
        self._folder = folder
        self._kept: deque[StoredLine] = deque(maxlen=MOST_KEPT)

    def read(self, spool: Spool, seconds: float) -> tuple[Gap, ...]:
        """Wait for lines for at most this many seconds, and write those of the last minute. Return what the server dropped.

        Raises:
            SourceFailed: The connection ended.
        """
        ends = time.monotonic() + seconds
        new = 0
        dropped: list[int] = []
        while (left := ends - time.monotonic()) > 0 or not new:
            message = self._socket.receive(max(0.0, left))
            if message is None:
                break
            new += self._take(message, dropped)
            if new:
                ends = min(ends, time.monotonic() + TOGETHER)
        if new:
            self._write(spool)
        if not dropped:
            return ()
        return (
            Gap(
                "tail_dropped",
                "loki",
                f"the server dropped {len(dropped)} new line{'s' if len(dropped) > 1 else ''}, which came faster than they were read",
                asked=f"{min(dropped) / NS:.3f} to {max(dropped) / NS:.3f}",
            ),
        )

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _take(self, message: bytes, dropped: list[int]) -> int:
        try:
            told = msgspec.json.decode(message)
            streams, lost = told.get("streams") or (), told.get("dropped_entries") or ()
            found = [line for stream in streams for line in self._lines(stream)]
            dropped += [_nanoseconds(entry["timestamp"]) for entry in lost]
        except (msgspec.DecodeError, RecursionError, AttributeError, TypeError, KeyError, ValueError):
            raise SourceFailed("bad_answer", "the tail sent a message that is none of Loki's") from None
        self._kept.extend(found)
        return len(found) + len(lost)

    def _write(self, spool: Spool) -> None:
        latest = max((line.at for line in self._kept), default=0)
        while self._kept and self._kept[0].at < latest - KEPT:
            self._kept.popleft()
        buffer = LineBuffer(1 << 30, MOST_KEPT + 1)
        buffer.add(tuple(self._kept))
        logs = list(buffer.logs(ended=False))
        spool.replace({f"logs/{self._folder}/{who.name()}.log": text for who, text, _ in logs if text})
        for who, text, at in logs:
            if text:
                spool.describe(f"logs/{self._folder}/{who.name()}.log", resource=who.resource(), written=at / NS)


def open_tail(client: HttpClient, streams: Labels, lines: Lines, folder: str, deadline: Deadline) -> LokiTail:
    """Open the tail of some streams, from now on.

    Raises:
        SourceFailed: The server or a proxy refused it.
    """
    params = {"query": selector(streams), "limit": str(LIMIT), "start": str(time.time_ns())}
    call = HttpRequest(url_path("loki", "api", "v1", "tail"), params=params, headers=CATEGORIES)
    return LokiTail(websocket(client, call, deadline.sooner(OPENING)), lines, folder)


def _nanoseconds(text: Any) -> int:
    """A time as Loki writes it in a dropped entry: nanoseconds, or RFC 3339."""
    if isinstance(text, int) or str(text).isdigit():
        return int(text)
    return round(datetime.fromisoformat(str(text)).timestamp() * NS)
