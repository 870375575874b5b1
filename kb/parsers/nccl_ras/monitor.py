"""Reads the events that `ncclras -m` writes when peers appear and die."""

from __future__ import annotations

import re

import msgspec

from kb.model import Event, Gap, Resource, Scalar
from kb.parsers.logs.timestamps import find_time
from kb.parsers.nccl_ras.values import MAX_LINES, gap

MAX_BYTES = 32 << 20
_LIFE = re.compile(
    r"^\[([\d\- :.]{8,40})\] ([A-Z_]{3,40}): (?:Process (\d{1,9}) on node (\S{1,253}) managing GPUs? ([\d,() NVML]{1,300}))?(.{0,500})"
)


class _Peer(msgspec.Struct):
    host: str = ""
    addr: str = ""
    pid: int = -1
    nvml_devs: list[int] = msgspec.field(default_factory=list)


class _Life(msgspec.Struct):
    event: str
    timestamp: str = ""
    group: str = ""
    details: str = ""
    peer: _Peer = msgspec.field(default_factory=_Peer)


_LIFE_JSON = msgspec.json.Decoder(_Life)


def read_ras_monitor(data: bytes, source: str) -> tuple[tuple[Event, ...] | None, tuple[Gap, ...]]:
    """Read the output of `ncclras -m`, JSON or text: events of kind "ras_peer" with reasons such as PEER_DEAD."""
    events: list[Event] = []
    lines = data[:MAX_BYTES].decode("utf-8", "replace").split("\n", MAX_LINES)
    held: list[str] = []
    for line in lines[:MAX_LINES]:
        if line.startswith("{"):
            held = []
        held = [*held, line] if len(held) < 64 else held
        if line.startswith("}"):
            _add_life("\n".join(held), source, events)
            held = []
        elif (found := _LIFE.match(line[:1024])) is not None:
            pid = int(found[3]) if found[3] else None
            events.append(_life(source, found[1], found[2], found[6], Resource(node=found[4], pid=pid, gpu=found[5])))
    if not events:
        return None, (gap("ras-unreadable", source, "no RAS monitor event"),)
    if len(lines) > MAX_LINES or len(data) > MAX_BYTES:
        return tuple(events), (gap("ras-cut", source, "the text is too long and was cut"),)
    return tuple(events), ()


def _add_life(text: str, source: str, events: list[Event]) -> None:
    try:
        event = _LIFE_JSON.decode(text.encode("utf-8", "replace"))
    except (msgspec.MsgspecError, RecursionError):
        return
    gpus = ",".join(str(device) for device in event.peer.nvml_devs[:64])
    who = Resource(
        node=event.peer.host or event.peer.addr or None,
        pid=event.peer.pid if event.peer.pid > 0 else None,
        gpu=gpus or None,
    )
    events.append(_life(source, event.timestamp, event.event, event.details, who))


def _life(source: str, stamp: str, event: str, details: str, who: Resource) -> Event:
    named = event[:40]
    said = f"{named}: process {who.pid} on {who.node}" if who.node else named
    fields: dict[str, Scalar] = {"details": details.strip()[:500]}
    return Event(source, find_time(stamp.encode()), "ras_peer", named, said, who, fields)
