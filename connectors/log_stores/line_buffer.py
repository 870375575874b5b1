"""Lines of logs as they come from a store, by who spoke and when: each once, in order, bounded; and written as logs.

Several questions overlap: a line that comes again is the same line where its key is. Of lines with one time the order is
that of the fullest answer.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from connectors.base.contract import safe_name
from kb.model import Resource

NS = 1_000_000_000
LONGEST_LINE = 64 << 10  # characters; the rest of a line is cut
BURST = 60 * NS  # telling lines so near to each other belong together
MOST_BEFORE = 400  # telling lines of a burst, counted from its end
_SHAPE = re.compile(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?")
_SHAPE_LENGTH = 120


def usual_names() -> dict[str, str]:
    """What the labels or fields that tell who spoke are called, unless a site calls them otherwise."""
    return {name: name for name in ("job", "namespace", "rank", "node", "pod", "container")}


@dataclass(frozen=True, slots=True, order=True)
class LogOrigin:
    """Who speaks in a stream, as far as its labels tell; empty where they do not. `rank` as it is written there."""

    rank: str = ""
    node: str = ""
    pod: str = ""
    container: str = ""

    def name(self) -> str:
        """A name for the file of its lines; other speakers have other names."""
        rank = f"rank-{self.rank}" if self.rank.isascii() and self.rank.isdigit() and len(self.rank) <= 7 else self.rank
        parts = [rank, self.pod or self.node] if self.rank else [self.pod, self.node]
        told = [part for part in (*parts, self.container) if part]
        return safe_name("_".join(told)) if told else "all"

    def resource(self) -> Resource:
        """The same for the description of a file."""
        number = int(self.rank) if self.rank.isascii() and self.rank.isdigit() and len(self.rank) <= 7 else None
        return Resource(node=self.node or None, rank=number, container=self.pod or self.container or None)


class StoredLine(NamedTuple):
    """One entry of a store. `at`: nanoseconds since the epoch; `key`: what tells it from others of its speaker and time."""

    at: int
    who: LogOrigin
    text: str
    key: Hashable


class LineBuffer:
    """What came so far. Safe to share between threads."""

    def __init__(self, most_bytes: int, most_lines: int) -> None:
        self.lines = 0
        self.bytes = 0
        self.full = False
        self._most = (most_bytes, most_lines)
        self._lock = threading.Lock()
        self._of: dict[LogOrigin, dict[int, list[tuple[Hashable, str]]]] = {}
        self._telling: dict[LogOrigin, dict[int, str]] = {}

    def add(self, page: Sequence[StoredLine], *, backward: bool = False, telling: bool = False) -> None:
        """Take a page of lines. `telling`: the rulebook looks for them."""
        groups: dict[tuple[LogOrigin, int], list[tuple[Hashable, str]]] = {}
        for line in reversed(page) if backward else page:
            groups.setdefault((line.who, line.at), []).append((line.key, line.text))
        with self._lock:
            for (who, at), group in groups.items():
                if self.full:
                    return
                self._merge(who, at, group)
                if telling:
                    self._telling.setdefault(who, {}).setdefault(at, group[0][1])

    def last(self, who: LogOrigin) -> int | None:
        """The time of the latest line of a speaker."""
        return max(self._of.get(who, ()), default=None)

    def telling(self, most: int, rare: int) -> list[tuple[LogOrigin, int]]:
        """Speakers to look at more closely, and when: first those that said what few others did, then who began first.

        Of each only its last burst counts: what stands before the end, not what was said and lived with.
        """
        with self._lock:
            bursts = {who: _burst(times) for who, times in self._telling.items()}
        sayers: dict[str, set[LogOrigin]] = {}
        shapes = {who: {at: _shape(text) for at, text in burst.items()} for who, burst in bursts.items()}
        for who, burst in shapes.items():
            for shape in burst.values():
                sayers.setdefault(shape, set()).add(who)
        chosen: list[tuple[int, int, LogOrigin]] = []
        for who, burst in shapes.items():
            fewest, at = min((len(sayers[shape]), at) for at, shape in burst.items())
            chosen.append((fewest if fewest <= rare else rare + 1, at if fewest > rare else -at, who))
        return [(who, abs(at)) for _, at, who in sorted(chosen)[:most]]

    def logs(self) -> Iterator[tuple[LogOrigin, bytes, int]]:
        """Of each speaker its lines as a log, and the time of the last."""
        clock = _Clock()
        for who in sorted(self._of):
            times = self._of[who]
            ordered = sorted(times)
            out = [clock.line(at, text) for at in ordered for _, text in times[at]]
            yield who, "".join(out).encode("utf-8", "replace"), ordered[-1]

    def _merge(self, who: LogOrigin, at: int, group: list[tuple[Hashable, str]]) -> None:
        times = self._of.setdefault(who, {})
        held = times.get(at, [])
        known = {key for key, _ in held}
        new = [pair for pair in group if pair[0] not in known]
        if not new:
            return
        fuller = len(known) + len(new) == len(group)
        times[at] = group if fuller else [*held, *new]
        self.lines += len(new)
        self.bytes += sum(len(text) + 32 for _, text in new)
        self.full = self.bytes >= self._most[0] or self.lines >= self._most[1]


def _burst(times: dict[int, str]) -> dict[int, str]:
    """The last telling lines of a speaker, back to a silence."""
    kept: dict[int, str] = {}
    after: int | None = None
    for at in sorted(times, reverse=True)[:MOST_BEFORE]:
        if after is not None and after - at > BURST:
            break
        kept[at] = times[at]
        after = at
    return kept


def _shape(text: str) -> str:
    return _SHAPE.sub("#", text[: 4 * _SHAPE_LENGTH])[:_SHAPE_LENGTH]


class _Clock:
    """Writes times; most of a log's lines share their second."""

    def __init__(self) -> None:
        self._second = -1
        self._text = ""

    def line(self, at: int, text: str) -> str:
        """A line of a store as lines of a log, each with the store's time in front."""
        second, rest = divmod(at, NS)
        if second != self._second:
            self._second = second
            self._text = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        stamp = f"{self._text}.{rest:09d}Z "
        text = text[:LONGEST_LINE].rstrip("\n")
        return f"{stamp}{text}\n" if "\n" not in text else "".join(f"{stamp}{word}\n" for word in text.split("\n"))
