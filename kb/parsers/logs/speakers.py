"""The process that wrote a line: from its prefix, a rank beside its level, its JSON fields, or its last key and value."""

from __future__ import annotations

import re

from kb.model import Resource
from kb.parsers.logs.lines import plain, resource, text
from kb.parsers.logs.prefixes import OF_GROUP, Prefix
from kb.parsers.logs.structured import rank_of
from kb.regex.lazy import lazy_compile

HEAD = 160  # bytes of a line that may name its writer
# in brackets, or set off as a column of its own: `ERROR - rank3 - `, `ERROR | rank=3 | `, `INFO    R03 `
_RANK = lazy_compile(
    rb"[\[(](?:global[_ ])?[Rr](?:ank|ANK)[ =:]{0,2}(?P<rank>\d{1,6})(?:/\d{1,6})?[\])]"
    rb"|(?: - |\| ?|(?:ERROR|CRITICAL|FATAL) {1,4})[Rr](?:ank|ANK)[ =:_]?(?P<column>\d{1,6})(?: - | ?\| |: )"
    rb"|\b(?:DEBUG|INFO|NOTICE|WARNING|WARN|ERROR|CRITICAL|FATAL)(?: {1,8}R(?P<short>\d{2,6}) |:[Rr]ank[_ ]?(?P<logger>\d{1,6}):)"
    rb"|\(PID:\d{1,9}, Device:\d{1,4}, RankID:(?P<ascend>\d{1,6})\)"
    rb"|^(?:ts|time|level|lvl|severity)=\S{1,40} (?:[\w.]{1,30}=\S{1,60} ){0,4}(?:global_)?rank=(?P<logfmt>\d{1,6}) "
)
# the last of a structured line's keys and values, behind others or its logger's name: `[trainer] rank=2`, `step=3 rank=2`
_LAST_KEY = lazy_compile(rb"(?:\]|\b\w{1,40}=[\w.+:-]{1,60}) {1,4}(?:global_)?rank=(?P<rank>\d{1,6})[ \r]{0,4}$")
# NCCL's own lines: host:process:thread [device]
_NCCL = lazy_compile(rb"(?<![\w.-])([A-Za-z][\w.-]{0,62}):(\d{1,9}):\d{1,9} \[(\d{1,3})\] [^\n]{0,120}?[NR]CCL ")
# UCX's lines: [host:process:thread] place in the source, name of the library
_UCX = lazy_compile(rb"\[([A-Za-z][\w.-]{0,62}):(\d{1,9}) ?:\d{1,9}(?::\d{1,9})?\] {1,4}\S{1,60} {1,4}UCX ")
# what stands before a message: levels, places in the source, names of loggers
_HEADER = lazy_compile(
    rb"(?:\[[^\]\n]{0,60}\]:? ?|(?:DEBUG|INFO|NOTICE|WARNING|WARN|ERROR|CRITICAL|FATAL)\b:? {0,4}|[\w./-]{1,60}:\d{1,6}:? ?|[\w.]{1,60}(?: ?[-|] |: ?)|[-|] ?){0,6}"
)
_OF_JOB = lazy_compile(OF_GROUP)
_LONGEST = 512  # bytes of such a line, which its caller may have cut


def speaker(line: bytes, prefix: Prefix) -> Resource:
    """Return the process that wrote a line, whose prefix the caller has read already."""
    if prefix.rank is not None:
        return resource(prefix)
    if b"UCX " in line[:HEAD] and (ucx := _UCX.search(line[:HEAD])):
        return resource(prefix, node=text(ucx[1]), pid=int(ucx[2]))
    spoken = _NCCL.search(line[:_LONGEST]) if b"CCL " in line else None
    return _of_library(prefix, spoken) if spoken else resource(prefix, rank=rank_told(line))


def writer(line: bytes, prefix: Prefix) -> Resource:
    """Return the process that wrote a line of any text: as `speaker`, but a rank in brackets only within the line's header.

    In a message, it may be another rank that the line is about.
    """
    if prefix.rank is not None:
        return resource(prefix)
    found = _RANK.search(line[:HEAD])
    if found is not None and found["rank"] and not _is_writer(line, prefix.end, found):
        return resource(prefix)
    return speaker(line, prefix)


def _is_writer(line: bytes, start: int, found: re.Match[bytes]) -> bool:
    """Whether a rank in brackets is before the message, and is none that c10d counts within a process group."""
    return _HEADER.fullmatch(line, start, found.start()) is not None and _OF_JOB.match(line, found.end()) is not None


def _of_library(prefix: Prefix, spoken: re.Match[bytes]) -> Resource:
    """Return the process of a line of NCCL. Device 0 may be the only one that each process sees, so it tells no local rank."""
    local = int(spoken[3]) or prefix.local_rank
    return resource(prefix._replace(local_rank=local), node=text(spoken[1]), pid=int(spoken[2]))


def rank_told(line: bytes) -> int | None:
    """Return the rank that a line names as its writer beyond the prefixes; None if it names none."""
    found = _RANK.search(line[:HEAD])
    if found is not None:
        return int(next(filter(None, found.groups())))
    last = _LAST_KEY.search(plain(line)) if b"rank" in line[-48:] and len(line) < _LONGEST else None
    return int(last["rank"]) if last else rank_of(line)
