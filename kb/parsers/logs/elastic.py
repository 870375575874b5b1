"""torchrun's failure block, and its agent's line about the process that failed first.

The block covers one agent, so one node; its "root cause" is the first failure that this agent saw.
"""

from __future__ import annotations

import re

from kb.model import Resource, Scalar, Structure
from kb.parsers.logs.lines import MAX_LINE, line_at, lines_from, number, on_line, plain, resource, text
from kb.parsers.logs.prefixes import peel
from kb.parsers.reader import Reader
from kb.parsers.signals import signal_of_status
from kb.regex.lazy import lazy_compile

_MAX_ITEMS = 512
_MAX_ABOVE = 16  # lines between what failed and the root cause
_MAX_IDLE = 8  # lines without an item, after which it is not a failure block
_MAX_FOREIGN = 400  # lines of other processes within one item
_MAX_LINES = 16 * _MAX_ITEMS
_HEADS = (b"Failures:", b"Root Cause (first observed failure)")
_ROOT = b"Root Cause"
_NAME = lazy_compile(rb"\s*(\S.{0,500}?) FAILED\s*$")
_ITEM = lazy_compile(rb"\s*\[(\d{1,6})\]:\s*$")
_FIELD = lazy_compile(rb"\s{0,8}(time|host|rank|exitcode|error_file|traceback)\s*:\s?(.*)$")
_RANK = lazy_compile(rb"(-?\d{1,9})(?: \(local_rank: (-?\d{1,9})\))?")
_EXIT = lazy_compile(rb"(-?\d{1,9})(?: \(pid: (\d{1,9})\))?(?:\s*\((SIG\w{1,12})\))?")
_SIGNAL = lazy_compile(rb"Signal \d{1,3} \((SIG\w{1,12})\)")
_FAILED = lazy_compile(
    rb"failed \(exitcode: (-?\d{1,9})\)(?: local_rank: (-?\d{1,9}))?(?: \(pid: (\d{1,9})\))?(?: of (?:binary|fn): (.{0,400}))?"
)


def _read_block(window: bytes, at: int) -> tuple[Structure, ...]:
    """Read one part of a block: the other failures, or the root cause, which may be all that is left of it."""
    name = _name_above(window, at)
    items: list[Structure] = []
    raw: dict[bytes, bytes] = {}
    start, end, idle, foreign = -1, at, 0, 0
    head = line_at(window, at)[0]
    voice = _voice(head)
    title = plain(head[peel(head).end :]).lstrip()
    if not title.startswith(_HEADS):
        return ()
    root = title.startswith(_ROOT)
    for position, after, line in lines_from(window, at, _MAX_LINES):
        if _voice(line) != voice:
            foreign += 1
            if foreign > _MAX_FOREIGN:
                break
            continue
        message = plain(line[peel(line).end :])
        item = _ITEM.match(message)
        pair = _FIELD.match(message) if start >= 0 else None
        if _ROOT in message and not root:
            break  # a part of its own
        if item or message.startswith((b"=====", b"-----")):
            items += _item(window, start, end, raw, name=name, root=root)
            start, raw = (position if item else -1), {}
            idle = foreign = 0
        elif pair and pair[1] not in raw:
            raw[pair[1]] = pair[2].strip()
            end = after
        elif start >= 0 and b"traceback" in raw and len(raw[b"traceback"]) < MAX_LINE:
            raw[b"traceback"] += b"\n" + message.rstrip()
            end = after
        idle += 1
        if message.startswith(b"=====") or len(items) >= _MAX_ITEMS or (idle > _MAX_IDLE and start < 0):
            break
    return (*items, *_item(window, start, end, raw, name=name, root=root))


def _voice(line: bytes) -> tuple[int | None, str | None]:
    """Return the agent that prints; nodes may print their blocks at the same time."""
    prefix = peel(line)
    return prefix.rank, prefix.node


def _name_above(window: bytes, at: int) -> str:
    """Return what failed, from the line `… FAILED` above the head of a part."""
    for _ in range(_MAX_ABOVE):
        if at <= 0:
            return ""
        at = window.rfind(b"\n", 0, at - 1) + 1
        line = line_at(window, at)[0]
        found = _NAME.match(plain(line[peel(line).end :]))
        if found:
            return text(found[1])
    return ""


def _item(
    window: bytes, start: int, end: int, raw: dict[bytes, bytes], *, name: str, root: bool
) -> tuple[Structure, ...]:
    rank = _RANK.match(raw.get(b"rank", b""))
    code = _EXIT.match(raw.get(b"exitcode", b""))
    if start < 0 or (rank is None and code is None):
        return ()
    fields: dict[str, Scalar] = {
        "name": name,
        "root": "yes" if root else "no",
        "time": text(raw.get(b"time")),
        "host": text(raw.get(b"host")),
        "rank": number(rank[1]) if rank else None,
        "local_rank": number(rank[2]) if rank else None,
        "exitcode": number(code[1]) if code else None,
        "signal": _signal(raw, code),
        "pid": number(code[2]) if code else None,
        "error_file": text(raw.get(b"error_file")),
        "traceback": text(raw.get(b"traceback"), 2000),
    }
    who = _who(window, start, fields)
    decisive = window.find(b"exitcode", start, end)
    offset = window.rfind(b"\n", 0, decisive) + 1 if decisive >= 0 else start
    return (on_line("elastic_failure", window, offset, fields, end=end, who=who),)


def _signal(raw: dict[bytes, bytes], code: re.Match[bytes] | None) -> str:
    found = _SIGNAL.search(raw.get(b"traceback", b""))
    if code and code[3]:
        return text(code[3])
    if found:
        return text(found[1])
    return signal_of_status(number(code[1])) if code else ""


def _who(window: bytes, start: int, fields: dict[str, Scalar]) -> Resource:
    """Return the process that the item is about, not the launcher that prints it."""
    prefix = peel(line_at(window, start)[0])
    host, rank, local, pid = (fields[key] for key in ("host", "rank", "local_rank", "pid"))
    return Resource(
        node=str(host) if host else prefix.node,
        rank=rank if isinstance(rank, int) and rank >= 0 else None,
        local_rank=local if isinstance(local, int) and local >= 0 else None,
        pid=pid if isinstance(pid, int) else None,
    )


def _read_exit(window: bytes, at: int) -> tuple[Structure, ...]:
    line, _ = line_at(window, at)
    found = _FAILED.search(line)
    if found is None:
        return ()
    local, pid = number(found[2]), number(found[3])
    fields: dict[str, Scalar] = {
        "exitcode": number(found[1]),
        "signal": signal_of_status(number(found[1])),
        "local_rank": local,
        "pid": pid,
        "binary": text(found[4]),
    }
    spoken = resource(peel(line))
    who = Resource(node=spoken.node, rank=None, local_rank=local, pid=pid)
    return (on_line("elastic_exit", window, at, fields, who=who),)


READERS: tuple[Reader, ...] = (
    Reader(
        name="elastic_block",
        trigger=r"(?:Failures:|Root Cause \(first observed failure\))",
        read=_read_block,
        before=1024,
        after=64 * 1024,
        keep=512,
    ),
    Reader(name="elastic_exit", trigger=r"failed \(exitcode: -?\d", read=_read_exit, after=1024, keep=256),
)
