"""Flight Recorder dumps: bytes in, one rank's `CollectiveTrace` out, whatever wrote them (pickle or JSON, NCCL or gloo).

A dump is a file of somebody's job and may be made to hurt. Pickles are walked opcode by opcode before they are loaded:
only those that build plain containers, numbers and text pass; the loader besides refuses every class and persistent id.
What is then built is converted by type, which bounds its depth. What cannot be bounded here is time (a tuple of tuples of
tuples as a key hashes for ever): strangers' pickles are read in a child process with limits (bot.diagnosis.flight_recorder_pool).
"""

from __future__ import annotations

import json
import pickle
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice, pairwise
from typing import Any, TypeVar

import msgspec

from kb.model import Collective, CollectiveTrace, Frame, Gap

KNOWN_MAJOR = ("1", "2")  # first parts of the format versions that were met
UNNAMED = "#"  # a group of which the dump gives a number but no name is called "#<number>" in `status`

_OPS = re.compile(r"(?:([A-Za-z0-9_.]+):)?(\S+)(?: (\d{1,9})(->|<-)(-?\d{1,9}))?")
_RANK_WORD = re.compile(r"rank[_-]?(\d{1,7})(?!\d)", re.IGNORECASE)
_RANK_END = re.compile(r"(?<!\d)(\d{1,7})(?:\.[A-Za-z]\w{0,15}){0,3}$")
_P2P = frozenset({"send", "recv", "isend", "irecv"})
_STATES = frozenset({"scheduled", "started", "completed"})
_LATEST = 10**20  # nanoseconds since the epoch: beyond it a stamp is garbage
_NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError, MemoryError)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of one dump is read: bytes of the file, entries (the last ones are kept), frames an entry, groups."""

    size: int = 64 << 20
    entries: int = 20_000
    frames: int = 64
    groups: int = 8192
    containers: int = 4_000_000  # of a pickle: an upper bound, counted before anything is built
    finished_frames: bool = True  # whether the stacks of finished operations are kept too


LIMITS = Limits()
_Part = TypeVar("_Part")


class _Frame(msgspec.Struct, gc=False):
    name: str = ""
    filename: str = ""
    line: int | None = None


class _Entry(msgspec.Struct):
    """An entry as it is written. Old versions have `seq_id` and `pg_name`; numbers may come as text."""

    pg_id: int | None = None
    process_group: tuple[str, ...] = ()
    pg_name: str = ""
    collective_seq_id: int | None = None
    seq_id: int | None = None
    p2p_seq_id: int | None = None
    is_p2p: bool = False
    profiling_name: str = ""
    time_created_ns: int | None = None
    time_discovered_started_ns: int | None = None
    time_discovered_completed_ns: int | None = None
    duration_ms: float | None = None
    input_sizes: tuple[tuple[int, ...], ...] = ()
    output_sizes: tuple[tuple[int, ...], ...] = ()
    input_dtypes: tuple[str, ...] = ()
    output_dtypes: tuple[str, ...] = ()
    state: str = ""
    timeout_ms: float | None = None
    retired: bool | None = None
    frames: tuple[_Frame, ...] | None = None


class _Group(msgspec.Struct):
    name: str = ""
    desc: str = ""
    ranks: str | tuple[int, ...] = ""


class _Status(msgspec.Struct):
    last_enqueued_collective: int = -1
    last_started_collective: int = -1
    last_completed_collective: int = -1


class _Dump(msgspec.Struct):
    version: str | float = ""
    rank: int | None = None
    pg_config: dict[str, _Group] = msgspec.field(default_factory=dict)
    pg_status: dict[str, _Status] = msgspec.field(default_factory=dict)
    nccl_version: str = ""
    entries: list[_Entry] = msgspec.field(default_factory=list)


@dataclass(slots=True)
class _Read:
    """What became of a dump on the way."""

    source: str
    limits: Limits
    gaps: list[Gap] = field(default_factory=list)

    def gap(self, code: str, reason: str, *, got: str = "", rules_out: str = "") -> None:
        self.gaps.append(Gap(code, self.source, reason, scope="flight_recorder", got=got, rules_out=rules_out))


def read_dump(data: bytes, source: str, limits: Limits = LIMITS) -> tuple[CollectiveTrace | None, tuple[Gap, ...]]:
    """One rank's recorder out of the bytes of its dump; `source` is the file's name, whose end tells the rank.

    `time` of the trace is the latest stamp in it: the dump was not written before. Nothing raises: what cannot be read, or
    is not read whole, is a gap, and where nothing can be read the trace is None.
    """
    work = _Read(source, limits)
    dump = _dump(data, work)
    return (None if dump is None else _trace(dump, work)), tuple(work.gaps)


def rank_of(source: str) -> int | None:
    """The rank that a dump's file name tells: after the word `rank`, else the number at its end."""
    name = source.rsplit("/", 1)[-1]
    found = _RANK_WORD.search(name[-200:]) or _RANK_END.search(name[-80:])
    return int(found[1]) if found else None


# --- bytes to a typed dump -------------------------------------------------------------------------------------------


def _dump(data: bytes, work: _Read) -> _Dump | None:
    if len(data) > work.limits.size:
        size = f"{len(data) >> 20} MiB"
        work.gap("dump_too_large", f"larger than the {work.limits.size >> 20} MiB that are read of a dump", got=size)
        return None
    head = data[:64].lstrip()
    if head[:1] == b"{":
        return _from_json(data, work)
    if head[:1] == b"\x80":
        return _from_pickle(data, work)
    work.gap("dump_unreadable", "neither a JSON object nor a pickle of protocol 2 or later" if data else "empty file")
    return None


def _from_json(data: bytes, work: _Read) -> _Dump | None:
    try:
        return _DECODER.decode(data)
    except msgspec.ValidationError:
        pass  # a part is not as expected: read the rest
    except _NOT_JSON as error:
        work.gap("dump_unreadable", f"no whole JSON: {_words(error)}")
        return None
    try:
        return _tolerant(msgspec.json.decode(data), work)
    except _NOT_JSON as error:
        work.gap("dump_unreadable", f"no whole JSON: {_words(error)}")
        return None


def _from_pickle(data: bytes, work: _Read) -> _Dump | None:
    refused = refusal(data, work.limits.containers)
    if refused:
        work.gap("dump_refused", refused, rules_out="what this rank recorded; the file was not loaded")
        return None
    try:
        built = _Plain(_Source(data)).load()
    except (
        pickle.UnpicklingError,
        EOFError,
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        AttributeError,
        OverflowError,
        RecursionError,
        MemoryError,
    ) as error:
        work.gap("dump_unreadable", f"no whole pickle: {_words(error)}")
        return None
    try:
        return msgspec.convert(built, _Dump, strict=False)
    except (msgspec.ValidationError, RecursionError, ValueError):
        return _tolerant(built, work)


def _tolerant(built: Any, work: _Read) -> _Dump | None:
    """A dump of which some part is not as expected: what is, part by part, and how much was dropped."""
    if not isinstance(built, dict) or not ("entries" in built or "pg_status" in built or "pg_config" in built):
        work.gap("dump_unreadable", "no Flight Recorder dump: it has neither entries nor process groups")
        return None
    entries, bad = _each(_parts(built.get("entries")), _Entry, work.limits.entries * 4)
    configs, bad_configs = _named(built.get("pg_config"), _Group)
    status, bad_status = _named(built.get("pg_status"), _Status)
    dropped = bad + bad_configs + bad_status
    dropped += sum(
        built.get(name) is not None and not isinstance(built[name], kinds)
        for name, kinds in (("entries", (list, tuple)), ("pg_config", dict), ("pg_status", dict))
    )
    if dropped:
        work.gap("dump_partial", f"{dropped} parts are not of a known form", got=f"{len(entries)} entries")
    version, rank = built.get("version"), built.get("rank")
    return _Dump(
        version=version if isinstance(version, str | float) else "",
        rank=rank if isinstance(rank, int) else None,
        pg_config=configs,
        pg_status=status,
        entries=entries,
    )


def _parts(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _each(parts: Iterable[Any], kind: type[_Part], most: int) -> tuple[list[_Part], int]:
    """What of the parts is of a kind, and how many are not or too many."""
    good: list[_Part] = []
    bad = 0
    for part in parts:
        if len(good) >= most:
            bad += 1
            continue
        try:
            good.append(msgspec.convert(part, kind, strict=False))
        except (msgspec.ValidationError, RecursionError, ValueError):
            bad += 1
    return good, bad


def _named(value: Any, kind: type[_Part]) -> tuple[dict[str, _Part], int]:
    items = list(islice(value.items(), LIMITS.groups)) if isinstance(value, dict) else []
    good: dict[str, _Part] = {}
    for name, part in items:
        one, _ = _each((part,), kind, 1)
        if one and isinstance(name, str | int):
            good[str(name)[:200]] = one[0]
    return good, len(items) - len(good)


def _words(error: Exception) -> str:
    return " ".join(str(error).split())[:160]


# --- pickles ---------------------------------------------------------------------------------------------------------

_WIDTH = [0] * 256  # of an opcode that builds plain values, with its argument, where that has a fixed size; else 0
for _codes, _width in (
    (b"()]}aesut\x85\x86\x87\x88\x89\x94N01", 1),
    (b"Khq\x80", 2),
    (b"M", 3),
    (b"Jj", 5),
    (b"G\x95", 9),
):
    for _code in _codes:
        _WIDTH[_code] = _width
_LENGTH = {0x58: 4, 0x8C: 1, 0x8D: 8, 0x55: 1, 0x54: 4, 0x43: 1, 0x42: 4, 0x8A: 1}  # text, bytes and long integers
_PUT = 0x72  # its argument is a memo index of 32 bits, and the loader makes room for the highest one at once
_STOP = 0x2E
_LONG, _LONGEST_NUMBER = 0x8A, 16
_CONTAINERS = (b"]", b"}", b")", b"\x85", b"\x86", b"\x87", b"t")


def refusal(data: bytes, containers: int = LIMITS.containers) -> str:
    """Why a pickle is not loaded, or nothing: an opcode that does more than build plain values, too much, or no end.

    Linear in the size; nothing is built. What passes cannot name a class, call, or set state.
    """
    if sum(map(data.count, _CONTAINERS)) > containers:
        return f"it may build more than {containers} containers"
    try:
        return _walk(data)
    except IndexError:
        return "it is cut off: no end of the pickle"


def _walk(data: bytes) -> str:
    at = 0
    widths, lengths = _WIDTH, _LENGTH
    while True:
        code = data[at]
        width = widths[code]
        if width:
            at += width
        elif code == _PUT:
            if data[at + 4] or data[at + 3] > 0x3F:
                return f"a memo index at byte {at} is too large"
            at += 5
        elif code == _STOP:
            return ""
        elif code not in lengths:
            return f"opcode {code:#04x} at byte {at} is none that a dump of plain values needs"
        else:
            width = lengths[code]
            size = int.from_bytes(data[at + 1 : at + 1 + width], "little")
            if code == _LONG and size > _LONGEST_NUMBER:
                return f"a number of {size} bytes at byte {at}"
            at += 1 + width + size


class _Source:
    """Bytes as the little of a file that the loader asks for; `peek` lets it take them in one piece."""

    def __init__(self, data: bytes) -> None:
        self.data = memoryview(data)
        self.at = 0

    def peek(self, size: int, /) -> bytes:
        return bytes(self.data[self.at : self.at + max(size, 1 << 20)])

    def read(self, size: int, /) -> bytes:
        start, self.at = self.at, min(self.at + size, len(self.data))
        return bytes(self.data[start : self.at])

    def readline(self) -> bytes:
        raise pickle.UnpicklingError("a line is asked for: that is no opcode of plain values")


class _Plain(pickle.Unpickler):
    """The second lock: whatever the walk let through, no class and no persistent id is looked up."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"a class is asked for: {module[:80]}.{name[:80]}")

    def persistent_load(self, pid: Any) -> Any:  # noqa: ARG002 - the name is the base class's
        raise pickle.UnpicklingError("a persistent id is asked for")


# --- a typed dump to a trace -----------------------------------------------------------------------------------------


def _trace(dump: _Dump, work: _Read) -> CollectiveTrace:
    version = str(dump.version)[:40]
    if version.split(".")[0] not in KNOWN_MAJOR:
        work.gap("dump_version_unknown", f"format version {version!r} is not known; read as well as it goes")
    if not dump.entries and not dump.pg_status:
        reason = "the recorder held nothing: it was off, or nothing was done yet"
        work.gap("dump_empty", reason, rules_out="whether this rank joined what others wait in")
    kept = dump.entries[-work.limits.entries :]
    if len(kept) < len(dump.entries):
        work.gap("dump_cut", "only the last entries are kept", got=f"{len(kept)} of {len(dump.entries)}")
    frames: dict[tuple[str, str, int | None], Frame] = {}
    entries = tuple(_collective(one, frames, work.limits) for one in kept)
    groups, names = _groups(dump, work)
    for one in kept:
        if one.process_group[1:]:
            names.setdefault(_group_of(one), one.process_group[1][:200])
    if not groups and (entries or dump.pg_status):
        reason = "the dump does not tell who belongs to its process groups; worked out from who recorded them"
        work.gap("groups_inferred", reason, rules_out="a rank that never used a group is not known to belong to it")
    return CollectiveTrace(
        source=work.source,
        rank=_rank(dump, groups, work),
        version=version,
        backend=_backend(dump),
        time=max((t for one in entries for t in (one.created, one.started, one.completed) if t), default=None),
        groups=groups,
        group_names=names,
        inferred_groups=not groups,
        status=_status(dump, kept, groups),
        entries=entries,
    )


def _collective(one: _Entry, frames: dict[tuple[str, str, int | None], Frame], limits: Limits) -> Collective:
    found = _OPS.match(one.profiling_name)
    op = found[2] if found else one.profiling_name[:80]
    p2p = one.is_p2p or op in _P2P
    seq = one.p2p_seq_id if p2p and one.p2p_seq_id is not None else one.collective_seq_id
    seq = one.seq_id if seq is None else seq
    peer = None
    if found and found[3]:
        own, other = int(found[3]), int(found[5])
        peer = (own, other) if found[4] == "->" else (other, own)
    shown = (
        one.frames if one.frames and (limits.finished_frames or not (one.retired or one.state == "completed")) else ()
    )
    same = one.output_dtypes == one.input_dtypes or not one.output_dtypes
    return Collective(
        pg=_group_of(one),
        seq=-1 if seq is None else seq,
        op=op,
        state=one.state if one.state in _STATES else "",
        p2p=p2p,
        input_sizes=one.input_sizes,
        output_sizes=one.output_sizes,
        dtypes=one.input_dtypes if same else one.input_dtypes + one.output_dtypes,
        created=_seconds(one.time_created_ns),
        started=_seconds(one.time_discovered_started_ns),
        completed=_seconds(one.time_discovered_completed_ns),
        duration_ms=one.duration_ms,
        timeout_ms=one.timeout_ms,
        peer=peer,
        frames=tuple(_frame(frame, frames) for frame in shown[: limits.frames]),
        retired=bool(one.retired),
    )


def _frame(one: _Frame, known: dict[tuple[str, str, int | None], Frame]) -> Frame:
    key = (one.name, one.filename, one.line)
    frame = known.get(key)
    if frame is None:
        frame = known[key] = Frame(one.name[:200], one.filename[:400], one.line)
    return frame


def _group_of(one: _Entry) -> str:
    if one.process_group:
        return one.process_group[0][:200]
    return one.pg_name[:200] or ("" if one.pg_id is None else str(one.pg_id))


def _seconds(stamp: int | None) -> float | None:
    return stamp / 1e9 if stamp and 0 < stamp < _LATEST else None


def _groups(dump: _Dump, work: _Read) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
    groups: dict[str, tuple[int, ...]] = {}
    names: dict[str, str] = {}
    for key, one in islice(dump.pg_config.items(), work.limits.groups):
        name = (key or one.name)[:200]
        members = _members(one.ranks) if isinstance(one.ranks, str) else one.ranks
        if members is None:
            work.gap("group_unreadable", f"the members of process group {name!r} cannot be read")
        elif members:
            groups[name] = members
        if one.desc:
            names[name] = one.desc[:200]
    return groups, names


@lru_cache(maxsize=512)  # all ranks of a job name the same groups
def _members(text: str) -> tuple[int, ...] | None:
    try:
        told = json.loads(text) if text else []
    except (ValueError, RecursionError):
        return None
    if not isinstance(told, list) or not all(isinstance(one, int) and 0 <= one < 1 << 24 for one in told):
        return None
    return tuple(dict.fromkeys(told))


def _rank(dump: _Dump, groups: Mapping[str, tuple[int, ...]], work: _Read) -> int | None:
    """The rank: what the dump and its file's name tell, checked against the groups, all of which it belongs to."""
    told = {"the dump": dump.rank, "its file's name": rank_of(work.source)}
    told = {who: rank for who, rank in told.items() if rank is not None}
    named = next(iter(told.values()), None)
    own: tuple[int, ...] = ()
    if groups:
        smallest = min(groups.values(), key=len)
        own = tuple(one for one in smallest if all(one in _as_set(members) for members in groups.values()))
    if named is None and len(own) == 1:
        return own[0]
    if named is None:
        work.gap("dump_rank_unknown", "neither the dump nor its file's name tells the rank")
    elif len(set(told.values())) > 1 or (own and named not in own):
        said = [f"{who} says rank {rank}" for who, rank in told.items()]
        if own:
            said.append(f"its process groups say {f'rank {own[0]}' if len(own) == 1 else f'one of {len(own)}'}")
        fits = [rank for rank in told.values() if not own or rank in own]
        taken = own[0] if len(own) == 1 else fits[0] if fits else None
        got = "left out" if taken is None else f"taken as rank {taken}"
        work.gap("dump_rank_contradicted", ", ".join(said), got=got)
        return taken
    return named


@lru_cache(maxsize=512)
def _as_set(members: tuple[int, ...]) -> frozenset[int]:
    return frozenset(members)


def _backend(dump: _Dump) -> str:
    found = Counter(one.profiling_name.partition(":")[0] for one in dump.entries[-64:] if ":" in one.profiling_name)
    if found:
        return found.most_common(1)[0][0][:20]
    return "nccl" if dump.nccl_version else ""


def _status(
    dump: _Dump, entries: Sequence[_Entry], groups: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[int, int, int]]:
    """The counters by the name of the group; the dump has them by a number of its own, which its entries explain."""
    names = _numbers(dump, entries, groups)
    return {
        names.get(key, UNNAMED + key): (
            one.last_enqueued_collective,
            one.last_started_collective,
            one.last_completed_collective,
        )
        for key, one in islice(dump.pg_status.items(), LIMITS.groups)
    }


def _numbers(dump: _Dump, entries: Sequence[_Entry], groups: Mapping[str, tuple[int, ...]]) -> dict[str, str]:
    """A dump's own number of a group → the group's name.

    Both count up as groups are made, so where entries do not tell (an empty ring), the gaps between those that they do
    tell are filled in order, if as many numbers as names stand there.
    """
    names = {str(one.pg_id): _group_of(one) for one in entries if one.pg_id is not None}
    if not all(key.isdecimal() for key in dump.pg_status) or not all(name.isdecimal() for name in groups):
        return names
    numbers = sorted(dump.pg_status, key=int)
    ordered = sorted(groups, key=int)
    place = {name: index for index, name in enumerate(ordered)}
    fixed = [(index, place[names[key]]) for index, key in enumerate(numbers) if names.get(key) in place]
    if any(b[1] <= a[1] for a, b in pairwise(fixed)):
        return names
    for (number, name), (number_end, name_end) in pairwise([(-1, -1), *fixed, (len(numbers), len(ordered))]):
        if number_end - number == name_end - name:
            names |= dict(zip(numbers[number + 1 : number_end], ordered[name + 1 : name_end], strict=True))
    return names


_DECODER = msgspec.json.Decoder(_Dump, strict=False)
