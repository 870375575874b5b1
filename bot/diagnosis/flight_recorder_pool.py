"""Reads many Flight Recorder dumps in two long-lived child processes, and returns one digest per rank.

A dump is an untrusted file. The child that reads it has a memory limit, and the parent a time limit: a dump that kills or stalls
its child becomes a gap, the child is replaced, and reading continues. The result is decoded by type, so nothing in a dump is ever
executed, on either side. As a program (`python -m bot.diagnosis.flight_recorder_pool FD`) this module is the child.
"""

from __future__ import annotations

import gc
import itertools
import os
import resource
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any

import msgspec

from bot.runtime.sandbox import bare_environment, limit
from connectors.base.untrusted import read
from kb.collectives.trace import Ring, digest
from kb.model import Gap
from kb.parsers.artefacts.flight.dump import DumpLimits
from kb.parsers.artefacts.flight.read import read_dump

CHILDREN = 2
AHEAD = 4  # dumps sent to a child ahead of its answers
MEMORY = 2 << 30  # bytes of a child's address space
SECONDS = 30.0  # seconds for one dump
BUDGET = 600.0  # seconds for all dumps
DEATHS = 32  # lost children after which reading stops
ANSWER = 64 << 20  # bytes of one digest
ALIKE = 8  # gaps of one kind listed individually; the rest is counted

_LIMITS = DumpLimits(finished_frames=False)  # a digest contains only the stack of the first unfinished operation


class DumpResult(msgspec.Struct, array_like=True, frozen=True):
    """A child's answer about one dump."""

    ring: Ring | None
    gaps: tuple[Gap, ...]


def _to_wire(value: Any) -> Any:
    if isinstance(value, range):
        return (value.start, value.stop, value.step)
    raise NotImplementedError(type(value).__name__)


def _from_wire(kind: type, value: Any) -> Any:
    if kind is range:
        return range(*msgspec.convert(value, tuple[int, int, int]))
    raise NotImplementedError(kind.__name__)


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_to_wire)
_DECODER = msgspec.msgpack.Decoder(DumpResult, dec_hook=_from_wire)


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """Limits: seconds for one dump and for all dumps, bytes of memory per child, and bytes read per dump."""

    seconds: float = SECONDS
    budget: float = BUDGET
    memory: int = MEMORY
    limits: DumpLimits = _LIMITS


@dataclass(slots=True)
class _DumpReader:
    process: subprocess.Popen[bytes]
    link: Connection[bytes, bytes]
    asked: deque[str] = field(default_factory=deque)
    since: float = 0.0


def read_dumps(paths: Iterable[Path], bounds: PoolLimits = PoolLimits()) -> tuple[tuple[Ring, ...], tuple[Gap, ...]]:
    """Return the digest of every readable dump, sorted by path, and gaps for the others; never raises for a dump."""
    wanted = deque(sorted(str(path) for path in paths))
    rings: list[Ring] = []
    gaps: list[Gap] = []
    for answer in _answers(wanted, bounds):
        gaps += answer.gaps
        if answer.ring is not None:
            rings.append(answer.ring)
    rings.sort(key=lambda item: item.source)
    return tuple(rings), _counted(gaps)


def _answers(wanted: deque[str], bounds: PoolLimits) -> Iterator[DumpResult]:
    """Yield the answers as they arrive; dumps are removed from `wanted`."""
    end = time.monotonic() + bounds.budget
    lost = 0
    children: list[_DumpReader] = []
    try:
        while wanted or any(child.asked for child in children):
            while len(children) < min(CHILDREN, len(wanted)) and lost < DEATHS:
                children.append(_started(bounds))
            for child in children:
                _feed(child, wanted)
            now = time.monotonic()
            if now > end or not children:
                yield _unread([*(name for child in children for name in child.asked), *wanted], late=now > end)
                return
            due = min(child.since for child in children if child.asked) + bounds.seconds
            ready = wait([child.link for child in children], timeout=max(0.0, min(due, end) - now))
            for child in list(children):
                answer, fell = _heard(child, child.link in ready, bounds)
                if answer is not None:
                    yield answer
                if fell:
                    lost += 1
                    children.remove(child)
                    wanted.extendleft(reversed(child.asked))
    finally:
        for child in children:
            _stopped(child)


def _feed(child: _DumpReader, wanted: deque[str]) -> None:
    while wanted and len(child.asked) < AHEAD:
        if not child.asked:
            child.since = time.monotonic()
        with suppress(OSError):  # a dead child is noticed when its pipe is read
            child.link.send_bytes(os.fsencode(wanted[0]))
        child.asked.append(wanted.popleft())


def _heard(child: _DumpReader, ready: bool, bounds: PoolLimits) -> tuple[DumpResult | None, bool]:
    """Return the answers of a child, and whether it was lost while reading its current dump."""
    if ready:
        try:
            answer = _DECODER.decode(child.link.recv_bytes(ANSWER))
        except (EOFError, OSError, msgspec.MsgspecError):
            return _lost(child, "dump_killed_reader", "the process that read it died (memory)"), True
        child.asked.popleft()
        child.since = time.monotonic()
        return answer, False
    if child.asked and time.monotonic() - child.since > bounds.seconds:
        return _lost(child, "dump_stalled_reader", f"reading it took more than {bounds.seconds:g} s"), True
    return None, False


def _lost(child: _DumpReader, code: str, reason: str) -> DumpResult | None:
    _stopped(child)
    if not child.asked:
        return None
    return DumpResult(None, (Gap(code, child.asked.popleft(), reason, scope="flight_recorder", rules_out=_RULES_OUT),))


def _unread(names: Sequence[str], *, late: bool) -> DumpResult:
    reason = (
        "the time limit for reading dumps was reached"
        if late
        else "too many dumps killed or stalled the process that read them"
    )
    gap = Gap(
        "dumps_not_read", names[0], f"{len(names)} dumps: {reason}", scope="flight_recorder", rules_out=_RULES_OUT
    )
    return DumpResult(None, (gap,))


_RULES_OUT = "the record of this rank"


def _counted(gaps: Sequence[Gap]) -> tuple[Gap, ...]:
    """Return gaps sorted by source; only the first few of a kind, the last of which says how many more there are."""
    total = Counter(gap.code for gap in gaps)
    kept: list[Gap] = []
    met: Counter[str] = Counter()
    for gap in sorted(gaps, key=lambda item: (item.source, item.code)):
        met[gap.code] += 1
        more = total[gap.code] - ALIKE
        if met[gap.code] < ALIKE or (met[gap.code] == ALIKE and not more):
            kept.append(gap)
        elif met[gap.code] == ALIKE:
            kept.append(replace(gap, reason=f"{gap.reason} (and {more} more dumps)"))
    return tuple(kept)


def _started(bounds: PoolLimits) -> _DumpReader:
    ours, theirs = Pipe()
    environment = bare_environment()
    limits = msgspec.json.encode(bounds.limits).decode()
    with theirs:
        process = subprocess.Popen(  # noqa: S603 - our own module
            [
                sys.executable,
                "-P",
                "-m",
                "bot.diagnosis.flight_recorder_pool",
                str(theirs.fileno()),
                str(bounds.memory),
                limits,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )
    return _DumpReader(process, ours)


def _stopped(child: _DumpReader) -> None:
    child.link.close()
    child.process.kill()
    child.process.wait()


# --- in the child ------------------------------------------------------------------------------------------------------


def main() -> None:
    """Answer paths with digests until the parent closes the connection."""
    _limit(int(sys.argv[2]))
    limits = msgspec.json.decode(sys.argv[3], type=DumpLimits)
    gc.disable()  # a dump has many small values, and cycles only if it is malicious
    with Connection(int(sys.argv[1])) as link, suppress(EOFError, BrokenPipeError, ConnectionResetError):
        for count in itertools.count(1):
            if not count % 64:
                gc.collect()
            link.send_bytes(_answered(os.fsdecode(link.recv_bytes(1 << 16)), limits))


def _answered(path: str, limits: DumpLimits) -> bytes:
    try:
        return _ENCODER.encode(_read(path, limits))
    except (MemoryError, RecursionError):
        gap = Gap("dump_too_large", path, "it needs more memory than the limit", scope="flight_recorder")
    except (OverflowError, ValueError) as error:
        gap = Gap("dump_unreadable", path, f"a number in it is out of range: {error}"[:200], scope="flight_recorder")
    return _ENCODER.encode(DumpResult(None, (replace(gap, rules_out=_RULES_OUT),)))


def _read(path: str, limits: DumpLimits) -> DumpResult:
    try:
        data = _bytes(path, limits.size + 1)
    except OSError as error:
        reason = f"cannot be opened: {error.strerror or error}"
        return DumpResult(None, (Gap("dump_unreadable", path, reason, scope="flight_recorder", rules_out=_RULES_OUT),))
    trace, gaps = read_dump(data, path, limits)
    return DumpResult(None if trace is None else digest(trace), gaps)


def _bytes(path: str, most: int) -> bytes:
    """Return the first bytes of a regular file; anything else is rejected (a named pipe would block forever)."""
    return read(path, most)


def _limit(memory: int) -> None:
    limit(((resource.RLIMIT_AS, memory), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 0)))


if __name__ == "__main__":
    main()
