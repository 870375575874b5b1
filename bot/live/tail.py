"""Tails growing logs: lines written since the last poll, in existing files and new ones."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from bot.live.log_view import LineFilter, LogClock, LogLine, Logs, log_name, masked
from connectors.base.untrusted import opened
from connectors.bundles.streams import is_plain
from kb.model import StreamRef

LATEST = 8 << 10  # bytes of each log that are shown initially
MOST_AT_ONCE = 4 << 20  # bytes of one log read per poll
LONGEST_LINE = 1 << 20
AGAIN = 10  # polls after which files are listed again


@dataclass(slots=True)
class _TailedFile:
    told: LogClock
    key: tuple[int, int]
    at: int
    number: int = 0
    rest: bytes = b""


@dataclass(slots=True)
class LogTail:
    """Follows the logs that `list_logs` returns: call `look` repeatedly.

    Lines have numbers only if the log was read from its beginning. A truncated or replaced log is read from its start.
    """

    list_logs: Callable[[], Logs]
    wanted: LineFilter
    from_start: bool = False
    _tails: dict[str, _TailedFile] = field(default_factory=dict)
    _refs: dict[str, tuple[StreamRef, str]] = field(default_factory=dict)
    _looks: int = 0

    def look(self) -> Iterator[LogLine]:
        """The new lines of all logs, sorted by time if they have one."""
        if self._looks % AGAIN == 0:
            self._list(first=self._looks == 0)
        self._looks += 1
        new: list[tuple[float, int, LogLine]] = []
        for uri, (ref, name) in self._refs.items():
            latest = float("-inf")
            for line in self._grown(uri, ref, name):
                latest = max(latest, line.time if line.time is not None else latest)
                new.append((latest, len(new), line))
        yield from masked(line for _, _, line in sorted(new))

    def _list(self, *, first: bool) -> None:
        logs = self.list_logs()
        self._refs = {
            ref.uri: (ref, log_name(ref, logs.root))
            for ref in logs.streams
            if self.wanted.of_stream(ref.resource) and is_plain(ref)
        }
        moved = {tail.key: tail for tail in self._tails.values()}
        for uri, (ref, name) in self._refs.items():
            if uri in self._tails:
                continue
            with suppress(OSError):
                status = Path(uri).stat()
                key = (status.st_dev, status.st_ino)
                if key in moved:  # rotated: its lines have been shown already
                    self._tails[uri] = replace(moved[key])
                    continue
                at = max(0, status.st_size - LATEST) if first and not self.from_start else 0
                self._tails[uri] = _TailedFile(LogClock(ref, name), key, at, 0 if at else 1)

    def _grown(self, uri: str, ref: StreamRef, name: str) -> Iterator[LogLine]:
        tail = self._tails.get(uri)
        if tail is None:
            return
        try:
            with opened(uri) as handle:
                status = os.fstat(handle.fileno())
                if (status.st_dev, status.st_ino) != tail.key or status.st_size < tail.at:
                    self._tails[uri] = tail = _TailedFile(LogClock(ref, name), (status.st_dev, status.st_ino), 0, 1)
                new = os.pread(handle.fileno(), MOST_AT_ONCE, tail.at)
        except OSError:
            return  # gone for now; it can come back under the same name
        if tail.at and not tail.number and not tail.rest:  # starts in the middle of a line
            cut = new.find(b"\n") + 1
            tail.at, new = tail.at + cut, new[cut:]
            tail.number = -1
        tail.at += len(new)
        text = tail.rest + new
        cut = text.rfind(b"\n") + 1 or (len(text) if len(text) > LONGEST_LINE else 0)
        whole, tail.rest = text[:cut], text[cut:]
        number = max(0, tail.number)
        for line in tail.told.block(whole, number, self.wanted):
            yield line if number else line._replace(number=0)
        tail.number += whole.count(b"\n") if number else 0
