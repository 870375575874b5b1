"""Reads processes.json: processes that ended while others of the job continued, as `signalbox watch` saw them.

`{"format": 1, "ended": [{"rank": 3, "node": "gpu-31", "pid": 4711, "time": 1780000000.5, "how": "SIGKILL", "others":
7}]}`. `how`: a signal's name, `exit <status>`, or `gone` if unknown. `others`: the number of ranks that continued.
"""

from __future__ import annotations

import math

import msgspec

from kb.model import Event, Gap, Resource, Scalar

LARGEST = 16 << 20
MOST = 100_000
KIND = "process_end"
GONE = "gone"
_BROKEN = (msgspec.MsgspecError, RecursionError, UnicodeError)


class Ended(msgspec.Struct, frozen=True, omit_defaults=True):
    """One process that ended. `time`: when it was seen to be gone, seconds since the epoch."""

    rank: int
    pid: int
    time: float
    how: str = GONE
    node: str = ""
    others: int = 0


class _File(msgspec.Struct):
    format: int = 1
    ended: list[msgspec.Raw] = []


def written(ended: tuple[Ended, ...]) -> bytes:
    """Return the content of processes.json for these processes."""
    return msgspec.json.format(msgspec.json.encode({"format": 1, "ended": ended}), indent=1)


def read_processes(data: bytes, source: str) -> tuple[tuple[Event, ...] | None, tuple[Gap, ...]]:
    """Read processes.json; None if the data is not in that format. Unusable entries are skipped."""
    if len(data) > LARGEST:
        return None, (Gap("processes_unreadable", source, f"{len(data)} bytes; at most {LARGEST} are read"),)
    try:
        file = msgspec.json.decode(data, type=_File)
    except _BROKEN as error:
        return None, (Gap("processes_unreadable", source, f"not a list of ended processes: {str(error)[:200]}"),)
    found, odd = [], max(0, len(file.ended) - MOST)
    for raw in file.ended[:MOST]:
        try:
            ended = msgspec.json.decode(raw, type=Ended)
        except _BROKEN:
            odd += 1
            continue
        if 0 <= ended.rank < 1 << 31 and math.isfinite(ended.time):
            found.append(event_of(ended, source))
        else:
            odd += 1
    gaps = (
        (Gap("processes_left_out", source, f"{odd} {'entry is' if odd == 1 else 'entries are'} unusable"),)
        if odd
        else ()
    )
    return tuple(found), gaps


def event_of(item: Ended, source: str) -> Event:
    """Return the process's end as an event."""
    how = item.how[:40]
    ending = {GONE: "is gone for an unknown reason"}.get(
        how, f"ended by {how}" if how.startswith("SIG") else f"ended: {how}"
    )
    message = f"rank {item.rank}: process {item.pid} {ending}, while {item.others} other ranks kept running"
    fields: dict[str, Scalar] = {"signal": how if how.startswith("SIG") else "", "pid": item.pid, "others": item.others}
    who = Resource(node=item.node[:200] or None, rank=item.rank, pid=item.pid)
    return Event(source, item.time, KIND, how, message, who, fields)
