"""Finds the start, writer and time of lines in a block of bytes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from functools import lru_cache

from kb.model import Resource
from kb.parsers.logs.prefixes import MAX_BYTES, peel
from kb.parsers.logs.speakers import HEAD, writer
from kb.parsers.logs.structured import stamp_of
from kb.parsers.logs.timestamps import find_time
from kb.regex.lazy import lazy_compile
from kb.scanning.summary import INVALID

LONGEST_STRUCTURED = 2048  # bytes of a JSON line in which its time is searched
LONGEST_LINE = 64 * 1024
_OF_OTHER_RANKS = (
    *(b" ", b"\x1b", *(b"[%d" % digit for digit in range(10)), b"[proc", b"[Proc", b"[jax", b"[R", b"[r"),
    *(b"process_index=", b"(worker_", b"(process_"),
)
_ESCAPED = lazy_compile("[\udc80-\udcff]")
_LABEL = lazy_compile(rb"[a-z][\w.-]{1,80} \d{1,6}: ")  # of HPE's mpiexec: the host and the rank


def owned_lines(
    data: bytes, hits: list[tuple[int, int]], low: int, high: int, once: frozenset[int]
) -> tuple[dict[int, list[int]], set[int]]:
    """Return pattern → sorted unique starts of the owned lines that it hits, and the `once` patterns that occur.

    `once` patterns report only one line of the block, which may lie in the context around the owned part.
    """
    found: dict[int, list[int]] = {}
    present: set[int] = set()
    mixed: set[int] = set()  # patterns whose lines are not in order; engines order hits by their end
    start, stop, own = -1, -1, False
    rfind, find, known = data.rfind, data.find, found.get
    for pattern, at in hits:
        if at >= stop or at < start:
            floor = at - LONGEST_LINE if at > LONGEST_LINE else 0
            newline = rfind(b"\n", floor, at)
            start = floor if newline < 0 else newline + 1
            newline = find(b"\n", at, at + LONGEST_LINE)
            stop = at + 1 if newline < 0 else newline
            own = low <= start < high
        if own:
            starts = known(pattern)
            if starts is None:
                found[pattern] = [start]
            elif (last := starts[-1]) != start:
                starts.append(start)
                if last > start:
                    mixed.add(pattern)
        elif pattern in once:
            present.add(pattern)
    for pattern in once & found.keys():
        present.add(pattern)
        del found[pattern]
    for pattern in mixed & found.keys():
        found[pattern] = sorted(set(found[pattern]))
    return found, present


def add_owned(
    found: dict[int, list[int]],
    present: set[int],
    known: Mapping[int, list[int]],
    *,
    low: int,
    high: int,
    once: frozenset[int],
) -> None:
    """Add lines whose starts are known, pattern by pattern and in order, to what `owned_lines` returns."""
    for pattern, starts in known.items():
        if pattern in once:
            present.add(pattern)
        elif own := starts[bisect_left(starts, low) : bisect_left(starts, high)]:
            found[pattern] = sorted({*found[pattern], *own}) if pattern in found else own


def rank_of_line(data: bytes, start: int) -> int | None:
    """Return the rank in a line's prefix. For nearly every line, this does not require parsing the whole prefix."""
    head = data[start : start + HEAD]
    if head.startswith(b"[rank"):
        number, closed, _ = head[5:12].partition(b"]")
        if closed and number.isdigit():
            return int(number)
    named = b"ank" in head or b"RANK" in head
    if named or head[:1].isdigit() or head.startswith(_OF_OTHER_RANKS) or _LABEL.match(head):
        prefix = peel(data[start : start + 256])
        return writer(line_at(data, start)[:512], prefix).rank if named else prefix.rank
    return peel(line_at(data, start)[: 2 * MAX_BYTES]).rank if b"%|" in head else None


def line_at(data: bytes, start: int) -> bytes:
    """Return the line that starts here, without its end; at most `LONGEST_LINE` bytes."""
    stop = data.find(b"\n", start, start + LONGEST_LINE)
    return data[start : stop if stop >= 0 else start + LONGEST_LINE]


def filled_resource(stream: Resource, line: Resource) -> Resource:
    """Return the resource that a line names, completed with its stream's."""
    return Resource(
        cluster=line.cluster or stream.cluster,
        node=line.node or stream.node,
        rank=stream.rank if line.rank is None else line.rank,
        local_rank=stream.local_rank if line.local_rank is None else line.local_rank,
        gpu=line.gpu or stream.gpu,
        pid=stream.pid if line.pid is None else line.pid,
        container=line.container or stream.container,
    )


def time_of_line(line: bytes, year: int | None) -> float | None:
    """Return the timestamp of a line; None if it has none."""
    return _stamp(line[:LONGEST_STRUCTURED], year)


@lru_cache(maxsize=4096)
def _stamp(line: bytes, year: int | None) -> float | None:
    """Return the time at a line's start. Cached, since the lines around kept ones are read again and again."""
    if line.startswith(b"{") and (time := stamp_of(line)) is not None:
        return time
    prefix = peel(line[:512], year)
    return prefix.time if prefix.time is not None else find_time(line[prefix.end : prefix.end + 128], year)


def time_at_or_before(data: bytes, start: int, year: int | None) -> tuple[float | None, bool]:
    """Return the timestamp of a line, or the nearest one in the twelve lines before it, and whether it is the line's own."""
    for before, line in enumerate(
        (line_at(data, start), *reversed(data[max(0, start - 2048) : start].split(b"\n")[-13:]))
    ):
        if line and (time := time_of_line(line, year)) is not None:
            return time, not before
    return None, False


def first_time(head: bytes, year: int | None) -> float | None:
    """Return the first timestamp in the first 200 lines."""
    for line in head.split(b"\n")[:200]:
        if line and (time := time_of_line(line, year)) is not None:
            return time
    return None


def decode(value: bytes) -> str:
    """Decode text as UTF-8, replacing invalid bytes."""
    return value.decode("utf-8", errors="replace")


def decode_in_size(value: bytes) -> str:
    """Decode text as UTF-8, with `INVALID` for each invalid byte, so that the text is as long in bytes as before."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return _ESCAPED.sub(INVALID, value.decode("utf-8", "surrogateescape"))
