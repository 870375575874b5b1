"""Training logs as JSON lines: time, rank and memory by their keys, in any order.

The step and the metrics are read by kb.parsers.logs.progress.formats, as for any other line.
"""

from __future__ import annotations

from dataclasses import replace

from kb.model import ProgressPoint
from kb.parsers.logs.timestamps import find_time
from kb.regex.lazy import lazy_compile

_TIME = lazy_compile(
    rb'"(?:@?timestamp|ts|time|asctime|datetime)": ?(?:"(?P<text>[^"\r\n]{10,40})"|(?P<number>\d{9,19}(?:\.\d{1,9})?)(?=[,} ]))'
)
_RANK = lazy_compile(rb'"(?:(?:global_|world_)?(?:rank|RANK)|process_index)": ?"?(?P<rank>\d{1,7})"?(?=[,} ])')
_MEMORY = lazy_compile(
    rb'"gpu_mem(?:ory)?_(?:usage|used|allocated)(?:_(?P<unit>bytes|[kmg]i?b))?": ?(?P<value>\d{1,16}(?:\.\d{1,9})?)(?=[,} ])'
)
_UNITS = {b"bytes": 1.0, b"k": 2.0**10, b"m": 2.0**20, b"g": 2.0**30}
_EARLIEST, _LATEST = 9.0e8, 1.0e10  # seconds since the epoch accepted as a time: 1998 to 2286
_MOST_GIB, _MOST_MIB = (
    512.0,
    1.0e7,
)  # a number without a unit: up to the first GiB, up to the second MiB, beyond it bytes


def stamp_of(line: bytes) -> float | None:
    """Return the time in a JSON line, as seconds since the epoch; None if it is missing or invalid.

    ISO 8601 text, or a number of seconds, milliseconds, microseconds or nanoseconds.
    """
    match = _TIME.search(line)
    if match is None:
        return None
    if match["text"] is not None:
        return find_time(match["text"])
    whole, _, fraction = match["number"].partition(b".")
    unit = next((item for item in (1, 10**3, 10**6) if int(whole) <= item * _LATEST), 10**9)
    seconds, rest = divmod(int(whole), unit)
    value = seconds + (rest + float(b"0." + (fraction or b"0"))) / unit
    return value if value >= _EARLIEST else None


def rank_of(line: bytes) -> int | None:
    """Return the global rank in a JSON line."""
    match = _RANK.search(line)
    return int(match["rank"]) if match else None


def memory_of(line: bytes) -> float | None:
    """Return the bytes of GPU memory in use; a bare number's size implies its unit; shares (up to 1) are skipped."""
    match = _MEMORY.search(line)
    if match is None:
        return None
    value, unit = float(match["value"]), match["unit"]
    if unit is not None:
        return value * (_UNITS.get(unit) or _UNITS[unit[:1]])
    if value <= 1:
        return None
    return value * 2.0**30 if value <= _MOST_GIB else value * 2.0**20 if value < _MOST_MIB else value


def completed(point: ProgressPoint, line: bytes) -> ProgressPoint:
    """Return a point of a JSON line, completed with its time, rank and memory."""
    rank = rank_of(line)
    return replace(
        point,
        time=stamp_of(line) if point.time is None else point.time,
        rank=point.rank if rank is None else rank,
        memory=memory_of(line) if point.memory is None else point.memory,
    )
