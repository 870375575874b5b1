"""Parses answers of `ncclras`: bytes in, a report out. JSON is parsed here, text in kb.parsers.nccl_ras.text."""

from __future__ import annotations

import re
from collections import Counter
from itertools import islice, pairwise
from typing import Final

import msgspec

from kb.model import Gap
from kb.parsers.logs.timestamps import find_time
from kb.parsers.nccl_ras.text import read_text
from kb.parsers.nccl_ras.values import (
    MAX_RANKS,
    Counts,
    RankState,
    RasCommunicator,
    RasLevel,
    RasRank,
    RasReport,
    gap,
)

MAX_BYTES: Final = 96 << 20  # 10,240 ranks in eight communicators each are 52 MB
MAX_COMMUNICATORS: Final = 100_000
_DENSE: Final = 12  # minimum bytes per comma: millions of tiny parts would fill memory


class _Status(msgspec.Struct):
    init_state: int = 0
    async_error: int = 0
    finalize_called: bool = False
    destroy_flag: bool = False
    abort_flag: bool = False
    unresponsive: bool = False
    considered_dead: bool = False


class _Rank(msgspec.Struct):
    rank: int
    host: str = ""
    pid: int = -1
    cuda_dev: int = -1
    nvml_dev: int = -1
    status: _Status = msgspec.field(default_factory=_Status)
    collective_counts: dict[str, int] = msgspec.field(default_factory=dict)


class _Communicator(msgspec.Struct):
    hash: str
    size: int
    secondary_hash: str = ""
    ranks: list[_Rank] = msgspec.field(default_factory=list)
    missing_ranks: list[_Rank] = msgspec.field(default_factory=list)


class _Collection(msgspec.Struct):
    collection_time_sec: float | None = None
    timeouts_count: int = 0


class _Answer(msgspec.Struct):
    communicators: list[msgspec.Raw]
    nccl_version: str = ""
    rccl_version: str = ""
    timestamp: str = ""
    communicators_count: int = 0
    ras: _Collection = msgspec.field(default_factory=_Collection)


_ANSWER = msgspec.json.Decoder(_Answer)
_COMMUNICATOR = msgspec.json.Decoder(_Communicator)
# the comma that 2.28.7 and 2.28.9 omit before "status"; others omit it between two objects as well
_NO_COMMA = re.compile(
    rb'("nvml_dev":[ \t]{0,8}-?\d{1,9})([ \t\r]{0,8}\n[ \t]{0,64}"status")|(\})([ \t\r]{0,8}\n[ \t]{0,64}\{)'
)
_START = re.compile(rb'\{\s{0,64}"hash"')
_HEX = re.compile(r"0x0*|^0+")


def read_ras(data: bytes, source: str, time: float | None = None) -> tuple[RasReport | None, tuple[Gap, ...]]:
    """Read one answer of `ncclras`, JSON or text. `time`: when it was requested, if the caller knows."""
    if len(data) > MAX_BYTES:
        return None, (gap("ras-too-large", source, f"more than {MAX_BYTES >> 20} MiB", asked=str(len(data))),)
    head = data[:4096].lstrip(b"\xef\xbb\xbf \t\r\n")
    if head.startswith(b"{"):
        return _read_json(data, source, time)
    return read_text(data, source, time)


def _read_json(data: bytes, source: str, time: float | None) -> tuple[RasReport | None, tuple[Gap, ...]]:
    gaps: list[Gap] = []
    if data.count(b",") > len(data) // _DENSE + 4096:
        return None, (gap("ras-unreadable", source, "more ranks than any RAS response has"),)
    answer = _decoded(data)
    if answer is None:
        repaired = _NO_COMMA.sub(rb"\1\3,\2\4", data)
        if repaired != data and (answer := _decoded(repaired)) is not None:
            gaps.append(gap("ras-repaired", source, "commas were missing in missing_ranks (NCCL 2.28.7 to 2.28.9)"))
        else:
            answer = _salvaged(repaired)
            if answer is None:
                return None, (gap("ras-unreadable", source, "neither NCCL RAS JSON nor a truncated part of it"),)
            gaps.append(
                gap("ras-cut", source, "broken JSON; whole communicators were kept", got=str(len(answer.communicators)))
            )
    communicators = _communicators(answer.communicators, source, gaps)
    report = RasReport(
        source=source,
        time=time if time is not None else find_time(answer.timestamp.encode("utf-8", "replace")),
        version=(answer.nccl_version or answer.rccl_version)[:40],
        communicators=communicators,
        communicators_count=max(answer.communicators_count, len(communicators)),
        timeouts=answer.ras.timeouts_count,
        collection_seconds=answer.ras.collection_time_sec,
    )
    if report.timeouts > 0:
        gaps.append(gap("ras-timeouts", source, f"{report.timeouts} processes did not answer RAS in time"))
    return report, tuple(gaps)


def _decoded(data: bytes) -> _Answer | None:
    try:
        return _ANSWER.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _salvaged(data: bytes) -> _Answer | None:
    """Return the complete communicators of a truncated file. Each piece is read once."""
    starts = [item.start() for item in islice(_START.finditer(data), MAX_COMMUNICATORS)]
    pieces: list[msgspec.Raw] = []
    for start, end in pairwise((*starts, len(data))):
        # an object is followed by a comma, or by the end of the document
        close = data.rfind(b"}", start, end) if end != len(data) else data.find(b"\n    }", start)
        if close >= 0:
            pieces.append(msgspec.Raw(data[start : data.find(b"}", close) + 1]))
    whole = [piece for piece in pieces if _communicator(piece) is not None]
    version = re.search(rb'"(?:nccl|rccl)_version":\s{0,8}"([^"\n]{1,40})"', data[:4096])
    stamp = re.search(rb'"timestamp":\s{0,8}"([^"\n]{1,40})"', data[:4096])
    if not whole:
        return None
    return _Answer(
        communicators=whole,
        nccl_version=version[1].decode("utf-8", "replace") if version else "",
        timestamp=stamp[1].decode("utf-8", "replace") if stamp else "",
    )


def _communicator(raw: msgspec.Raw) -> _Communicator | None:
    try:
        return _COMMUNICATOR.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _communicators(pieces: list[msgspec.Raw], source: str, gaps: list[Gap]) -> tuple[RasCommunicator, ...]:
    kept: dict[str, RasCommunicator] = {}
    shared: dict[Counts, Counts] = {}
    ranks = odd = 0
    left = max(0, len(pieces) - MAX_COMMUNICATORS)
    for piece in pieces[:MAX_COMMUNICATORS]:
        communicator = _communicator(piece)
        if communicator is None or not _sound(communicator):
            odd += 1
            continue
        ranks += len(communicator.ranks) + len(communicator.missing_ranks)
        if ranks > MAX_RANKS:
            left += 1
            continue
        key = _HEX.sub("", communicator.hash[:40].lower(), count=1) or "0"
        key = key if key not in kept else f"{key}/{communicator.secondary_hash[:80]}"
        kept[key] = _value(key, communicator, shared)
    if odd:
        gaps.append(gap("ras-odd-communicator", source, "a communicator has an unknown form", got=str(odd)))
    if left:
        gaps.append(gap("ras-too-many-ranks", source, f"more than {MAX_RANKS} ranks in one response", got=str(left)))
    return tuple(kept.values())


def _sound(communicator: _Communicator) -> bool:
    """Whether the numbers are plausible: no rank twice, none outside the communicator."""
    numbers = [rank.rank for rank in (*communicator.ranks, *communicator.missing_ranks)]
    return len(set(numbers)) == len(numbers) <= communicator.size and all(
        0 <= rank < communicator.size for rank in numbers
    )


def _value(key: str, communicator: _Communicator, shared: dict[Counts, Counts]) -> RasCommunicator:
    present = [_rank(rank, _state(rank.status), shared) for rank in communicator.ranks]
    gone = [_rank(rank, _gone(rank.status), shared) for rank in communicator.missing_ranks]
    levels = Counter((op, count) for rank in present for op, count in rank.counts)
    return RasCommunicator(
        id=key,
        size=communicator.size,
        ranks=tuple(sorted((*present, *gone), key=lambda rank: rank.rank)),
        levels=tuple(RasLevel(op, count, ranks) for (op, count), ranks in sorted(levels.items())),
    )


def _rank(rank: _Rank, state: RankState, shared: dict[Counts, Counts]) -> RasRank:
    counts = tuple(sorted((op[:40], count) for op, count in rank.collective_counts.items()))[:32]
    return RasRank(
        rank=rank.rank,
        host="" if rank.host == "unknown" else rank.host[:253],
        pid=rank.pid if rank.pid > 0 else None,
        gpu=rank.nvml_dev if rank.nvml_dev >= 0 else None,
        state=state,
        error=rank.status.async_error,
        counts=shared.setdefault(counts, counts),  # nearly all ranks share a few
    )


def _state(status: _Status) -> RankState:
    if status.abort_flag:
        return "aborted"
    if status.finalize_called or status.destroy_flag:
        return "finalizing"
    return {0: "running", 7: "init"}.get(status.init_state, "error")  # type: ignore[return-value]


def _gone(status: _Status) -> RankState:
    if status.considered_dead:
        return "dead"
    return "missing" if status.unresponsive else "absent"
