"""Collects log lines from a store by origin and time, deduplicated, ordered and bounded, and writes them as logs.

Queries overlap. Lines with the same key are the same line. Lines with equal times keep the order of the most complete
response.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from connectors.base.contract import safe_name
from connectors.log_stores.shipped_lines import timed, unwrapped
from kb.model import Resource

NS = 1_000_000_000
LONGEST_LINE = 64 << 10  # characters; longer lines are cut
BURST = 60 * NS  # matching lines this close together form a burst
MOST_BEFORE = 400  # matching lines of a burst, counted from its end
_SHAPE = re.compile(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?")
_SHAPE_LENGTH = 120


def usual_names() -> dict[str, str]:
    """Return the default names of the labels or fields that identify the origin of a line."""
    return {name: name for name in ("job", "namespace", "rank", "node", "pod", "container")}


@dataclass(frozen=True, slots=True, order=True)
class LogOrigin:
    """The origin of a line according to its labels; empty if they do not name one. `rank` as it is written there."""

    rank: str = ""
    node: str = ""
    pod: str = ""
    container: str = ""

    def name(self) -> str:
        """Return a unique file name for its lines."""
        rank = f"rank-{self.rank}" if self.rank.isascii() and self.rank.isdigit() and len(self.rank) <= 7 else self.rank
        parts = [rank, self.pod or self.node] if self.rank else [self.pod, self.node]
        told = [part for part in (*parts, self.container) if part]
        return safe_name("_".join(told)) if told else "all"

    def resource(self) -> Resource:
        """Return the origin as the resource in a file's description."""
        number = int(self.rank) if self.rank.isascii() and self.rank.isdigit() and len(self.rank) <= 7 else None
        return Resource(node=self.node or None, rank=number, container=self.pod or self.container or None)


class StoredLine(NamedTuple):
    """One entry of a store. `at`: nanoseconds since the epoch; `key`: distinguishes entries of equal origin and time."""

    at: int
    who: LogOrigin
    text: str
    key: Hashable


class LineBuffer:
    """The lines received so far. Thread-safe."""

    def __init__(self, most_bytes: int, most_lines: int) -> None:
        self.lines = 0
        self.bytes = 0
        self.full = False
        self._most = (most_bytes, most_lines)
        self._lock = threading.Lock()
        self._of: dict[LogOrigin, dict[int, list[tuple[Hashable, str]]]] = {}
        self._telling: dict[LogOrigin, dict[int, str]] = {}
        self._changed: set[LogOrigin] = set()  # since the logs were last written

    def add(self, page: Sequence[StoredLine], *, backward: bool = False, telling: bool = False) -> None:
        """Add a page of lines. `telling`: the rules look for them."""
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
        """Return the time of an origin's latest line."""
        return max(self._of.get(who, ()), default=None)

    def telling(self, most: int, rare: int) -> list[tuple[LogOrigin, int]]:
        """Return origins to examine more closely, and at what time: first those with rare lines, then those that began earliest.

        Only the last burst of each counts, because earlier ones did not end the run.
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

    def logs(self, *, ended: bool = True) -> Iterator[tuple[LogOrigin, bytes, int]]:
        """Yield the lines of each origin that has new ones since the last call, as a log, and the time of its last line.

        `ended`: if only pieces of the last line arrived, they are written as they are, since no more is expected.
        """
        clock = _Clock()
        with self._lock:
            changed, self._changed = sorted(self._changed), set()
        for who in changed:
            with self._lock:
                times = dict(self._of[who])
            ordered = sorted(times)
            out = [
                clock.line(at, text)
                for at, text in unwrapped(((at, text) for at in ordered for _, text in times[at]), ended=ended)
            ]
            yield who, "".join(out).encode("utf-8", "replace"), ordered[-1]

    def with_words(self, words: Sequence[str]) -> list[StoredLine]:
        """Return the lines with any of these words, as they are written."""
        with self._lock:
            return [
                StoredLine(at, who, text, key)
                for who, times in self._of.items()
                for at, group in times.items()
                for key, text in group
                if any(word in text for word in words)
            ]

    def counts(self) -> dict[LogOrigin, int]:
        """Return how many lines of each origin there are."""
        with self._lock:
            return {who: sum(map(len, times.values())) for who, times in self._of.items()}

    def _merge(self, who: LogOrigin, at: int, group: list[tuple[Hashable, str]]) -> None:
        times = self._of.setdefault(who, {})
        held = times.get(at, [])
        known = {key for key, _ in held}
        new = [pair for pair in group if pair[0] not in known]
        if not new:
            return
        fuller = len(known) + len(new) == len(group)
        times[at] = group if fuller else [*held, *new]
        self._changed.add(who)
        self.lines += len(new)
        self.bytes += sum(len(text) + 32 for _, text in new)
        self.full = self.bytes >= self._most[0] or self.lines >= self._most[1]


def _burst(times: dict[int, str]) -> dict[int, str]:
    """The last burst of matching lines of an origin."""
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
    """Formats times; most lines of a log share their second with the line before."""

    def __init__(self) -> None:
        self._second = -1
        self._text = ""

    def line(self, at: int, text: str) -> str:
        """Format a line of a store as log lines with the store's time."""
        second, rest = divmod(at, NS)
        if second != self._second:
            self._second = second
            self._text = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        stamp = f"{self._text}.{rest:09d}Z"
        words = text[:LONGEST_LINE].rstrip("\n").split("\n")
        return "".join(f"{timed(stamp, word)}\n" for word in words)
