"""Merges the lines of many logs by time, filtered by rank, node and time, in bounded memory.

Logs are read block by block and merged by timestamp; a line without a timestamp takes that of the previous line. Secrets are
masked in the output.
"""

from __future__ import annotations

import heapq
import re
import resource
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from bot.runtime.redaction import redact_bytes
from bot.runtime.safe_regex import Search
from connectors.base.untrusted import opened
from connectors.bundles.description import read_description
from connectors.bundles.streams import StreamReader, discover
from kb.errors import UnreadableInput
from kb.model import Gap, Resource, StreamRef
from kb.parsers.logs.prefixes import Prefix, peel
from kb.parsers.logs.structured import rank_of, stamp_of

LONGEST = 16 << 10  # bytes shown of a line
MEMORY = 128 << 20  # of all blocks together
LEAST_BLOCK, MOST_BLOCK = 64 << 10, 4 << 20
BACK = 40  # lines to look back for a timestamp
FEW = 256  # this many lines are checked one by one
SLACK = 5.0  # seconds by which a line may be older than the previous one
BATCH = 256  # lines masked at a time
_RANKS = re.compile(r"(\d{1,7})(?:-(\d{1,7}))?")
MOST_RANKS = 100_000


class LogLine(NamedTuple):
    """One line. `number`: from 1, or 0 if unknown; `text`: without the prefixes for time and rank; `whole`: with these prefixes."""

    time: float | None
    rank: int | None
    node: str | None
    source: str
    number: int
    text: str
    whole: str


@dataclass(frozen=True, slots=True)
class LineFilter:
    """Which lines to show: those of these ranks (all if empty) and this node, in [start, end), that match `grep`."""

    ranks: frozenset[int] = frozenset()
    node: str | None = None
    start: float | None = None
    end: float | None = None
    grep: Search | None = None

    def of_stream(self, who: Resource) -> bool:
        """Whether a log may contain matching lines, judging by its name."""
        here = self.node is None or who.node is None or _same_node(who.node, self.node)
        return here and (not self.ranks or who.rank is None or who.rank in self.ranks)

    def of_speaker(self, rank: int | None, node: str | None) -> bool:
        """Whether lines with this rank and node match."""
        here = self.node is None or (node is not None and _same_node(node, self.node))
        return here and (not self.ranks or (rank is not None and rank in self.ranks))

    def in_time(self, time: float | None) -> bool:
        """Whether a line with this time matches. A line without a time matches only if there is no time filter."""
        if time is None:
            return self.start is None and self.end is None
        return (self.start is None or time >= self.start) and (self.end is None or time < self.end)


def _same_node(node: str, wanted: str) -> bool:
    return node == wanted or node.partition(".")[0] == wanted


def ranks_of(text: str) -> frozenset[int]:
    """Parse ranks such as `7` or `0-3,8`.

    Raises:
        UnreadableInput: the text is not a list of ranks or ranges.
    """
    found: set[int] = set()
    for part in text.split(","):
        match = _RANKS.fullmatch(part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if last < first or last - first > MOST_RANKS:
            raise UnreadableInput(f"--rank {text[:40]!r}: expected a rank, or ranks such as 0-3,8")
        found.update(range(first, last + 1))
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class Logs:
    """The logs to show. `written`: when any of them was last written to; `gaps`: what cannot be read."""

    streams: tuple[StreamRef, ...]
    root: Path | None
    written: float | None
    gaps: tuple[Gap, ...]


def of_paths(paths: Sequence[Path]) -> Logs:
    """The logs of files and folders."""
    found = discover(paths)
    root = paths[0] if len(paths) == 1 and paths[0].is_dir() else None
    return Logs(found.streams, root, _written(found.streams), found.gaps)


def of_bundle(folder: Path) -> Logs:
    """The logs of a bundle, with the sources and times in its description."""
    description, odd = read_description(folder)
    found = discover([folder], bundle=True)
    streams = tuple(_spoken(ref, description.speakers.get(log_name(ref, folder))) for ref in found.streams)
    written = max(description.written.values(), default=None) or _written(streams)
    return Logs(streams, folder, written, (*found.gaps, *odd, *description.gaps))


def _spoken(ref: StreamRef, who: Resource | None) -> StreamRef:
    known = {name: value for name in Resource.__slots__ if (value := getattr(who, name, None)) is not None}
    return replace(ref, resource=replace(ref.resource, **known))


def end_of(logs: Logs) -> float | None:
    """The latest timestamp at the ends of the logs, or the time of the last write if there is none."""
    times = []
    for ref in logs.streams:
        clock = LogClock(ref, "")
        with suppress(OSError), opened(ref.uri) as handle:
            handle.seek(max(0, handle.seek(0, 2) - LEAST_BLOCK // 4))
            lines = handle.read(LEAST_BLOCK // 4).split(b"\n")
            times += [time for line in reversed(lines) if (time := clock.stamp(line)) is not None][:1]
    return max(times, default=logs.written)


def _written(streams: Iterable[StreamRef]) -> float | None:
    times = []
    for ref in streams:
        with suppress(OSError):
            times.append(Path(ref.uri).stat().st_mtime)
    return max(times, default=None)


def log_name(ref: StreamRef, root: Path | None) -> str:
    """The name of a log: its path within the folder."""
    path = Path(ref.uri)
    return str(path.relative_to(root)) if root is not None and path.is_relative_to(root) else ref.uri


# -- reading -------------------------------------------------------------------------------------------------------------


def lines_of(logs: Logs, wanted: LineFilter, gaps: list[Gap]) -> Iterator[LogLine]:
    """The matching lines of all logs, in order of time. Whatever cannot be read is appended to `gaps`."""
    streams = [ref for ref in logs.streams if wanted.of_stream(ref.resource)]
    _more_files(len(streams))
    block = max(LEAST_BLOCK, min(MOST_BLOCK, MEMORY // max(1, len(streams))))
    read = [stream_lines(ref, log_name(ref, logs.root), wanted, block, gaps) for ref in streams]
    merged = heapq.merge(*(_ordered(item, place) for place, item in enumerate(read)))
    yield from masked(line for _, _, _, line in merged)


def masked(lines: Iterable[LogLine]) -> Iterator[LogLine]:
    """The lines with secrets masked. Several lines are masked at a time, because a key can span lines."""
    batch: list[LogLine] = []
    for line in lines:
        batch.append(line)
        if len(batch) >= BATCH:
            yield from _masked(batch)
            batch = []
    yield from _masked(batch)


def _masked(batch: Sequence[LogLine]) -> Iterator[LogLine]:
    if not batch:
        return
    text = "\n".join(line.whole for line in batch).encode("utf-8", "surrogateescape")
    clear = redact_bytes(text)
    if clear == text:
        yield from batch
        return
    for line, whole in zip(batch, clear.decode("utf-8", "surrogateescape").split("\n"), strict=True):
        yield line._replace(whole=whole, text=whole[len(whole) - len(line.text) :])


def _ordered(lines: Iterator[LogLine], place: int) -> Iterator[tuple[float, int, int, LogLine]]:
    latest = float("-inf")
    for count, line in enumerate(lines):
        if line.time is not None and line.time > latest:
            latest = line.time
        yield latest, place, count, line


def stream_lines(ref: StreamRef, name: str, wanted: LineFilter, block: int, gaps: list[Gap]) -> Iterator[LogLine]:
    """The matching lines of one log, in file order, not masked."""
    reading = StreamReader(ref, block=block)
    number, rest = 1, b""
    clock = LogClock(ref, name)
    for piece in reading:
        text = rest + piece
        cut = text.rfind(b"\n") + 1
        if not cut and len(text) < MOST_BLOCK:
            rest = text
            continue
        whole, rest = (text[:cut], text[cut:]) if cut else (text, b"")
        yield from clock.block(whole, number, wanted)
        number += whole.count(b"\n")
        if wanted.end is not None and clock.first is not None and clock.first >= wanted.end:
            rest = b""
            break
    yield from clock.block(rest, number, wanted)
    gaps += [gap for gap in reading.gaps if gap.code != "growing"]


class LogClock:
    """The state of reading one log: the time of its last timestamp, and `first`, the first timestamp of the last block."""

    def __init__(self, ref: StreamRef, name: str) -> None:
        self.first: float | None = None
        self._who, self._name = ref.resource, name
        self._time: float | None = None
        self._year: int | None = None
        with suppress(OSError):
            self._year = datetime.fromtimestamp(Path(ref.uri).stat().st_mtime, UTC).year

    def block(self, text: bytes, number: int, wanted: LineFilter) -> Iterator[LogLine]:
        """The wanted lines in a block of whole lines. `number`: the number of its first line."""
        if not text:
            return
        lines = text.split(b"\n")
        if not lines[-1]:
            lines.pop()
        self.first = next((time for line in lines[:BACK] if (time := self.stamp(line)) is not None), None)
        if self._time is None:
            self._time = self.first
        if wanted.start is not None:
            last = next((time for line in reversed(lines[-BACK:]) if (time := self.stamp(line)) is not None), None)
            if last is not None and last < wanted.start:  # the whole block is older, apart from stray lines
                self._time = last
                return
        seen = begin = 0 if wanted.start is None else self._begin(lines, wanted.start)
        for place, line in enumerate(lines[begin:], begin):
            for part in _as_seen(line, wanted.grep):
                if wanted.grep is not None:
                    self._look_back(lines, seen, place)
                    seen = place
                yield from self._line(part, number + place, wanted)

    def _begin(self, lines: Sequence[bytes], start: float) -> int:
        """Approximately where lines of this time begin, by binary search: timestamps in a log increase, give or take a few seconds."""
        low, high = 0, len(lines)
        while high - low > FEW:
            middle = (low + high) // 2
            time = next((one for line in lines[middle : middle + BACK] if (one := self.stamp(line)) is not None), None)
            if time is None:
                break
            low, high = (middle, high) if time < start - SLACK else (low, middle)
        return low

    def _look_back(self, lines: Sequence[bytes], seen: int, place: int) -> None:
        """Find the timestamp that applies to a line without one, among the lines that were skipped."""
        found = (self.stamp(lines[at]) for at in range(place - 1, max(seen, place - BACK) - 1, -1))
        time = next((number for number in found if number is not None), None)
        if time is not None:
            self._time = time

    def stamp(self, line: bytes) -> float | None:
        """The timestamp in a line."""
        return stamp_of(line) if line.startswith(b"{") else peel(line, self._year).time

    def _line(self, line: bytes, number: int, wanted: LineFilter) -> Iterator[LogLine]:
        found = _structured(line) if line.startswith(b"{") else peel(line, self._year)
        if found.time is not None:
            self._time = found.time
        rank = found.rank if found.rank is not None else self._who.rank
        node = found.node or self._who.node
        if wanted.in_time(self._time) and wanted.of_speaker(rank, node):
            cut = line if len(line) <= LONGEST else line[:LONGEST] + b" ..."
            whole = cut.decode("utf-8", "surrogateescape")
            text = cut[found.end :].decode("utf-8", "surrogateescape")
            yield LogLine(self._time, rank, node, self._name, number, text, whole)


def _structured(line: bytes) -> Prefix:
    """The time and rank in a line of JSON; its text stays whole."""
    return Prefix(time=stamp_of(line), rank=rank_of(line))


def _as_seen(line: bytes, grep: Search | None) -> Iterable[bytes]:
    """A line as a terminal would show it: only the last state of a progress bar, or, in a search, the part that matches."""
    if b"\r" not in line:
        return (line,) if grep is None or grep(line) else ()
    parts = [part for part in line.split(b"\r") if part] or [b""]
    return parts[-1:] if grep is None else [part for part in parts if grep(part)]


def _more_files(count: int) -> None:
    """Raise this process's limit of open files to this number, if permitted."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count + 256:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard != resource.RLIM_INFINITY else count + 1024, hard))
