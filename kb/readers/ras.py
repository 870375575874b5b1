"""NCCL RAS: what `ncclras` says of every communicator, as JSON or as text, and what several such answers tell together.

RAS counts the collectives that each rank has launched in each communicator; it knows no durations, no point-to-point
operations, and its rank numbers count within the communicator. One answer proves nothing (a running job is always a
little uneven), two that stand still do. Its time stamps are local time without a zone: the caller's time is better.
The releases 2.28.7 to 2.28.9 write broken JSON as soon as a rank is missing; it is repaired here, and told.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from typing import Final, Literal

import msgspec

from kb.model import Event, Gap, Resource, Scalar, Structure
from kb.readers.timestamps import find_time

MAX_BYTES: Final = 96 << 20  # 10,240 ranks in eight communicators each are 52 MB
MAX_COMMUNICATORS: Final = 100_000
_DENSE: Final = 12  # bytes for each comma, at least: millions of tiny parts would fill the memory
MAX_RANKS: Final = 500_000  # over all communicators of one answer
MAX_POLLS: Final = 64  # the newest ones are compared
MAX_LINES: Final = 200_000  # of a text answer
THRESHOLD: Final = 30.0  # seconds
INIT_THRESHOLD: Final = 120.0  # a communicator of ten thousand ranks may take a minute to come up
SHOWN: Final = 256  # communicators and suspects told one by one

RankState = Literal["running", "init", "error", "finalizing", "aborted", "missing", "dead", "absent"]
PendingKind = Literal["behind", "disagree", "missing", "init"]
Vote = Literal["yes", "no", "not_observable"]
Counts = tuple[tuple[str, int], ...]
Process = tuple[str, int]

_GONE: Final = ("missing", "dead", "absent")
_LEAVING: Final = ("finalizing", "aborted")


@dataclass(frozen=True, slots=True)
class RasRank:
    """One rank of a communicator. `rank` counts within it; `gpu` is the number that NVML gives it.

    `state`: "missing" did not answer, "dead" has not answered for a minute, "absent" answered but is no member (yet or
    any more). `error` is the asynchronous NCCL error, 0 for none. `counts`: operation → how many were launched.
    """

    rank: int
    host: str = ""
    pid: int | None = None
    gpu: int | None = None
    state: RankState = "running"
    error: int = 0
    counts: Counts = ()


@dataclass(frozen=True, slots=True)
class RasLevel:
    """`ranks` ranks have launched `count` operations of kind `op`."""

    op: str
    count: int
    ranks: int


@dataclass(frozen=True, slots=True)
class RasCommunicator:
    """One communicator. `id`: its hash, without 0x. `partial`: only ranks that stand out are listed (text form)."""

    id: str
    size: int
    ranks: tuple[RasRank, ...] = ()
    levels: tuple[RasLevel, ...] = ()
    partial: bool = False


@dataclass(frozen=True, slots=True)
class RasReport:
    """One answer. `time`: seconds since the epoch. `dead`, `silent`: processes by (host, pid), from the text form.

    `communicators_count` counts those that there are; the text form names only those with something to say.
    """

    source: str
    time: float | None = None
    version: str = ""
    form: Literal["json", "text"] = "json"
    communicators: tuple[RasCommunicator, ...] = ()
    communicators_count: int = 0
    dead: tuple[Process, ...] = ()
    silent: tuple[Process, ...] = ()
    timeouts: int = 0
    collection_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class RasPlace:
    """A rank of a pending communicator. `world_rank`: None where it could not be worked out. `lag`: operations behind.

    `moves`: its process still launches operations in another communicator.
    """

    rank: int
    world_rank: int | None = None
    host: str = ""
    pid: int | None = None
    gpu: int | None = None
    lag: int = 0
    moves: bool = False


@dataclass(frozen=True, slots=True)
class PendingCommunicator:
    """A communicator that stands still although it should not.

    `kind`: "behind" some ranks launched fewer operations, "disagree" as many but others, "missing" the others wait for
    ranks that do not answer, "init" it does not come up. `age`: seconds for which nothing moved, at least. `odd`: the
    fewer of those behind and those ahead; `ahead` tells that they are ahead. `certain`: the missing are known to lack an
    operation that others launched.
    """

    id: str
    size: int
    kind: PendingKind
    op: str
    since: float
    age: float
    odd: tuple[RasPlace, ...] = ()
    missing: tuple[RasPlace, ...] = ()
    dead: tuple[RasPlace, ...] = ()
    ahead: bool = False
    certain: bool = True
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class RasSuspect:
    """A process that others wait for. `state`: "dead", "missing" or "behind".

    `lacks`, `waits`: in how many pending communicators others wait for it, and it for others; one that never waits is a
    source.
    """

    place: RasPlace
    state: str
    lacks: int
    waits: int = 0


@dataclass(frozen=True, slots=True)
class RasVote:
    """Whether a collective is pending, over several answers. `span`: seconds from the first to the last of them."""

    vote: Vote
    detail: str
    age: float | None = None
    span: float | None = None
    polls: int = 0
    pending: tuple[PendingCommunicator, ...] = ()
    suspects: tuple[RasSuspect, ...] = ()


# --- reading -----------------------------------------------------------------------------------------------------------


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
# what 2.28.7 and 2.28.9 leave out stands before "status"; between two objects others have left it out as well
_NO_COMMA = re.compile(
    rb'("nvml_dev":[ \t]{0,8}-?\d{1,9})([ \t\r]{0,8}\n[ \t]{0,64}"status")|(\})([ \t\r]{0,8}\n[ \t]{0,64}\{)'
)
_START = re.compile(rb'\{\s{0,64}"hash"')
_HEX = re.compile(r"0x0*|^0+")


def read_ras(data: bytes, source: str, time: float | None = None) -> tuple[RasReport | None, tuple[Gap, ...]]:
    """Read one answer of `ncclras`, JSON or text. `time`: when it was asked for, where the caller knows it."""
    if len(data) > MAX_BYTES:
        return None, (_gap("ras-too-large", source, f"more than {MAX_BYTES >> 20} MiB", asked=str(len(data))),)
    head = data[:4096].lstrip(b"\xef\xbb\xbf \t\r\n")
    if head.startswith(b"{"):
        return _read_json(data, source, time)
    return _read_text(data, source, time)


def _gap(code: str, source: str, reason: str, asked: str = "", got: str = "") -> Gap:
    return Gap(code, source, reason, asked=asked, got=got, rules_out="which communicators stand still, and for whom")


def _read_json(data: bytes, source: str, time: float | None) -> tuple[RasReport | None, tuple[Gap, ...]]:
    gaps: list[Gap] = []
    if data.count(b",") > len(data) // _DENSE + 4096:
        return None, (_gap("ras-unreadable", source, "denser than any answer of RAS"),)
    answer = _decoded(data)
    if answer is None:
        repaired = _NO_COMMA.sub(rb"\1\3,\2\4", data)
        if repaired != data and (answer := _decoded(repaired)) is not None:
            gaps.append(_gap("ras-repaired", source, "commas were missing in missing_ranks (NCCL 2.28.7 to 2.28.9)"))
        else:
            answer = _salvaged(repaired)
            if answer is None:
                return None, (_gap("ras-unreadable", source, "neither JSON of NCCL RAS nor cut JSON of it"),)
            gaps.append(
                _gap(
                    "ras-cut", source, "broken JSON: whole communicators were kept", got=str(len(answer.communicators))
                )
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
        gaps.append(_gap("ras-timeouts", source, f"{report.timeouts} processes did not answer RAS in time"))
    return report, tuple(gaps)


def _decoded(data: bytes) -> _Answer | None:
    try:
        return _ANSWER.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _salvaged(data: bytes) -> _Answer | None:
    """Take the communicators that are whole out of a file that is not. Each piece is looked at once."""
    starts = [one.start() for one in islice(_START.finditer(data), MAX_COMMUNICATORS)]
    pieces: list[msgspec.Raw] = []
    for start, end in pairwise((*starts, len(data))):
        # behind an object stands a comma, or what ends the document
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
        one = _communicator(piece)
        if one is None or not _sound(one):
            odd += 1
            continue
        ranks += len(one.ranks) + len(one.missing_ranks)
        if ranks > MAX_RANKS:
            left += 1
            continue
        key = _HEX.sub("", one.hash[:40].lower(), count=1) or "0"
        key = key if key not in kept else f"{key}/{one.secondary_hash[:80]}"
        kept[key] = _value(key, one, shared)
    if odd:
        gaps.append(_gap("ras-odd-communicator", source, "a communicator is not of the known form", got=str(odd)))
    if left:
        gaps.append(_gap("ras-too-many-ranks", source, f"more than {MAX_RANKS} ranks in one answer", got=str(left)))
    return tuple(kept.values())


def _sound(one: _Communicator) -> bool:
    """Tell whether the numbers can be right: no rank twice, none outside of the communicator."""
    numbers = [rank.rank for rank in (*one.ranks, *one.missing_ranks)]
    return len(set(numbers)) == len(numbers) <= one.size and all(0 <= rank < one.size for rank in numbers)


def _value(key: str, one: _Communicator, shared: dict[Counts, Counts]) -> RasCommunicator:
    present = [_rank(rank, _state(rank.status), shared) for rank in one.ranks]
    gone = [_rank(rank, _gone(rank.status), shared) for rank in one.missing_ranks]
    levels = Counter((op, count) for rank in present for op, count in rank.counts)
    return RasCommunicator(
        id=key,
        size=one.size,
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


# --- the text form -----------------------------------------------------------------------------------------------------

_ROW = re.compile(
    r"^ {0,8}(\d{1,6}) {1,12}(\d{1,7}) {1,12}(\d{1,6}) {1,12}(\d{1,6}(?:-\d{1,6})?) {1,12}(\d{1,7}) {1,12}(\d{1,7}) {1,12}([A-Z/]{2,12}) {1,12}([A-Z,]{2,40})\s*$"
)
_BLOCK = re.compile(r"^#(\d{1,6})-(\d{1,6}) \(([0-9a-f]{1,40})\) ([A-Z]{2,20})")
_OP = re.compile(r"ranks have different (?:(\w{1,40}) )?operation counts")
_LAUNCHED = r"launched up to operation (\d{1,19})|not (launched) any operations|status (\w{1,20})"
_MANY = re.compile(rf"^\s{{0,8}}(\d{{1,7}}) ranks have (?:{_LAUNCHED})")
_ONE = re.compile(
    rf"^\s{{0,8}}Rank (\d{{1,7}})(?: has (?:{_LAUNCHED})| reported ([A-Z][^\[\n]{{2,40}}?))? -- "
    r"(?:GPU (\d{1,3})(?: \(NVML (\d{1,3})\))? managed by process (\d{1,9}) on node (\S{1,253})|\[process)"
)
_MISSING = re.compile(r"^\s{0,8}The missing ranks?: ([0-9,\- ]{1,2000})")
_PROCESS = re.compile(r"^\s{0,8}Process (\d{1,9}) on node (\S{1,253}) managing GPU")
_TIMEOUTS = re.compile(r"Encountered (\d{1,9}) communication timeout")
_TOOK = re.compile(r"Communicators\.\.\. \((\d{1,6}\.\d{1,3})s\)")
_VERSION = re.compile(r"[NR]CCL version ([\w.+\-]{1,40})")
_TEXT_STATES: Final[Mapping[str, RankState]] = {
    "RUNNING": "running",
    "INIT": "init",
    "FINALIZE": "finalizing",
    "ABORT": "aborted",
    "NOCOMM": "absent",
    "UNKNOWN": "absent",
}


@dataclass(slots=True)
class _Open:
    """A communicator while its blocks are read."""

    size: int
    ranks: dict[int, RasRank] = field(default_factory=dict)
    levels: dict[tuple[str, int], int] = field(default_factory=dict)


@dataclass(slots=True)
class _Text:
    """Where the reading of a text answer stands: the section, the communicator, and what was said of several ranks."""

    sizes: dict[int, int] = field(default_factory=dict)
    comms: int = 0
    found: dict[str, _Open] = field(default_factory=dict)
    current: _Open | None = None
    section: str = ""
    op: str = ""
    level: int | None = None
    state: RankState = "running"
    dead: list[Process] = field(default_factory=list)
    silent: list[Process] = field(default_factory=list)
    timeouts: int = 0
    left: int = MAX_RANKS

    def feed(self, line: str) -> None:
        """Take one line."""
        if row := _ROW.match(line):
            self.sizes[int(row[1])] = int(row[5])
            self.comms += int(row[2])
        elif block := _BLOCK.match(line):
            self._open(block)
        elif line[:1].isalpha() and line.strip().isupper():
            self.section, self.current = line.strip(), None
        elif process := _PROCESS.match(line):
            (self.dead if self.section == "DEAD" else self.silent).append((process[2], int(process[1])))
        elif timeouts := _TIMEOUTS.search(line):
            self.timeouts = int(timeouts[1])
        elif self.current is not None:
            self._in_block(line, self.current)

    def _open(self, block: re.Match[str]) -> None:
        key = block[3].lstrip("0") or "0"
        self.current = self.found.setdefault(key, _Open(self.sizes.get(int(block[1]), 0)))
        self.op, self.level = "", None
        self.state = "missing" if block[4] == "INCOMPLETE" else "running"
        self.section = block[4]

    def _in_block(self, line: str, current: _Open) -> None:
        if op := _OP.search(line):
            self.op, self.level, self.state = op[1] or "collective", None, "running"
        elif many := _MANY.match(line):
            self._level(current, many[2], many[3], many[4], int(many[1]))
        elif one := _ONE.match(line):
            if one[2] or one[3] or one[4]:
                self._level(current, one[2], one[3], one[4], 1)
            self._rank(current, int(one[1]), one)
        elif missing := _MISSING.match(line):
            ranks = _numbers(missing[1], min(current.size or 1024, self.left))
            self.left -= len(ranks)
            for rank in ranks:
                current.ranks.setdefault(rank, RasRank(rank, state="missing"))

    def _level(self, current: _Open, launched: str | None, none: str | None, state: str | None, ranks: int) -> None:
        if state is not None:
            self.state, self.level = _TEXT_STATES.get(state, "error"), None
        elif launched or none:
            self.level = int(launched or 0)
            current.levels[self.op, self.level] = current.levels.get((self.op, self.level), 0) + ranks

    def _rank(self, current: _Open, rank: int, one: re.Match[str]) -> None:
        old = current.ranks.get(rank) or RasRank(rank)
        state: RankState = self.state if old.state == "running" else old.state
        if one[8] is not None:
            old = replace(old, host=one[9], pid=int(one[8]), gpu=int(one[7] or one[6]))
        counts = dict(old.counts)
        if self.level is not None:
            counts[self.op] = self.level
        current.ranks[rank] = replace(
            old, state=state, counts=tuple(sorted(counts.items())), error=int(self.section == "ERROR")
        )


def _numbers(text: str, limit: int) -> list[int]:
    """Give the ranks of "3,5-7", at most `limit`."""
    found: list[int] = []
    for part in text.replace(" ", ",").split(","):
        low, _, high = part.partition("-")
        if low.isdigit() and len(low) < 8 and len(high) < 8 and (not high or high.isdigit()):
            found.extend(range(int(low), min(int(high or low) + 1, int(low) + limit - len(found))))
        if len(found) >= limit:
            break
    return found


def _read_text(data: bytes, source: str, time: float | None) -> tuple[RasReport | None, tuple[Gap, ...]]:
    text = data[: 32 << 20].decode("utf-8", "replace")
    lines = text.split("\n", MAX_LINES)
    reading = _Text()
    for line in lines[:MAX_LINES]:
        reading.feed(line[:512].rstrip("\r"))
    if not reading.sizes and not reading.found:
        return None, (_gap("ras-unreadable", source, "no table of communicators in it"),)
    version, took = _VERSION.search(text, 0, 4096), _TOOK.search(text, 0, 65536)
    report = RasReport(
        source=source,
        time=time,
        version=version[1] if version else "",
        form="text",
        communicators=tuple(_closed(key, one, set(reading.dead)) for key, one in reading.found.items()),
        communicators_count=max(reading.comms, len(reading.found)),
        dead=tuple(reading.dead),
        silent=tuple(reading.silent),
        timeouts=reading.timeouts,
        collection_seconds=float(took[1]) if took else None,
    )
    gaps = [_gap("ras-text", source, "the text form lists only the ranks that stand out; `ncclras -f json` has all")]
    if len(lines) > MAX_LINES or len(data) > 32 << 20:
        gaps.append(_gap("ras-cut", source, "the text is too long and was cut"))
    return report, tuple(gaps)


def _closed(key: str, one: _Open, dead: set[Process]) -> RasCommunicator:
    ranks = [
        replace(rank, state="dead") if rank.pid is not None and (rank.host, rank.pid) in dead else rank
        for rank in sorted(one.ranks.values(), key=lambda rank: rank.rank)
    ]
    levels = tuple(RasLevel(op, count, ranks_at) for (op, count), ranks_at in sorted(one.levels.items()))
    return RasCommunicator(key, one.size or len(ranks), tuple(ranks), levels, partial=True)


# --- the monitor -------------------------------------------------------------------------------------------------------

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
    """Read what `ncclras -m` wrote: events of kind "ras_peer", reason PEER_DEAD and the like. JSON or text."""
    events: list[Event] = []
    lines = data[: 32 << 20].decode("utf-8", "replace").split("\n", MAX_LINES)[:MAX_LINES]
    held: list[str] = []
    for line in lines:
        if line.startswith("{"):
            held = []
        held = [*held, line] if len(held) < 64 else held
        if line.startswith("}"):
            _add_life("\n".join(held), source, events)
        elif (found := _LIFE.match(line[:1024])) is not None:
            pid = int(found[3]) if found[3] else None
            events.append(_life(source, found[1], found[2], found[6], Resource(node=found[4], pid=pid, gpu=found[5])))
    if not events:
        return None, (_gap("ras-unreadable", source, "no event of the RAS monitor in it"),)
    return tuple(events), ()


def _add_life(text: str, source: str, events: list[Event]) -> None:
    try:
        one = _LIFE_JSON.decode(text.encode("utf-8", "replace"))
    except (msgspec.MsgspecError, RecursionError):
        return
    gpus = ",".join(str(device) for device in one.peer.nvml_devs[:64])
    who = Resource(
        node=one.peer.host or one.peer.addr or None, pid=one.peer.pid if one.peer.pid > 0 else None, gpu=gpus or None
    )
    events.append(_life(source, one.timestamp, one.event, one.details, who))


def _life(source: str, stamp: str, event: str, details: str, who: Resource) -> Event:
    named = event[:40]
    said = f"{named}: process {who.pid} on {who.node}" if who.node else named
    fields: dict[str, Scalar] = {"details": details.strip()[:500]}
    return Event(source, find_time(stamp.encode()), "ras_peer", named, said, who, fields)


# --- world ranks -------------------------------------------------------------------------------------------------------


def init_ranks(inits: Iterable[Structure], world_size: int | None = None) -> Mapping[Process, int]:
    """Give the global rank of each (host, pid) from NCCL's own lines (structures of kind `nccl_init`).

    A communicator of the size of the world numbers its ranks as the world does; of others only the rank whose log it
    stood in is known. A process that is told two ways is left out.
    """
    found: dict[Process, int] = {}
    torn: set[Process] = set()
    for one in inits:
        host, pid = one.fields.get("host"), one.fields.get("pid")
        rank = one.fields.get("comm_rank") if one.fields.get("nranks") == world_size else one.resource.rank
        if not (isinstance(host, str) and isinstance(pid, int) and isinstance(rank, int)):
            continue
        if found.setdefault((host, pid), rank) != rank:
            torn.add((host, pid))
    return {key: rank for key, rank in found.items() if key not in torn}


def world_ranks(
    reports: Sequence[RasReport], world_size: int | None, known: Mapping[Process, int] | None = None
) -> Mapping[Process, int]:
    """Give the global rank of each (host, pid) that RAS names.

    From a communicator as large as the world, and from `known` (see `init_ranks`). RAS names hosts by address where logs
    use names: a pid that stands once on both sides decides then. What is told two ways is left out.
    """
    processes: dict[Process, int | None] = {}
    for report in reports[-MAX_POLLS:]:
        for comm in report.communicators:
            whole = comm.size == world_size
            for rank in comm.ranks:
                if rank.pid is not None:
                    _settle(processes, (rank.host, rank.pid), rank.rank if whole else None)
    return _with_known(processes, known or {})


def _settle(processes: dict[Process, int | None], key: Process, rank: int | None) -> None:
    """Note a process's rank; -1 where two answers contradict each other."""
    old = processes.get(key)
    if old is None:
        processes[key] = rank
    elif rank is not None and rank != old:
        processes[key] = -1


def _with_known(processes: Mapping[Process, int | None], known: Mapping[Process, int]) -> Mapping[Process, int]:
    pids = Counter(pid for _, pid in processes)
    by_pid: dict[int, list[int]] = {}
    for (_, pid), rank in known.items():
        by_pid.setdefault(pid, []).append(rank)
    found: dict[Process, int] = {}
    for (host, pid), seen in processes.items():
        alone = by_pid.get(pid, [])
        told = known.get((host, pid), seen)
        if told is None and pids[pid] == 1 and len(alone) == 1:
            told = alone[0]
        if told is not None and told >= 0:
            found[host, pid] = told
    return found


# --- several answers together ------------------------------------------------------------------------------------------


def pending(
    polls: Sequence[RasReport],
    threshold: float = THRESHOLD,
    init_threshold: float = INIT_THRESHOLD,
    ranks: Mapping[Process, int] | None = None,
    world_size: int | None = None,
) -> RasVote:
    """Tell whether a collective has been pending for `threshold` seconds, over two or more answers, and for whom.

    A communicator counts whose ranks have launched different operations, or which lacks ranks, and whose counts stood
    still for that long; one that comes up may take `init_threshold`; one that is being torn down never counts. `ranks`
    and `world_size` give global ranks (see `world_ranks`).
    """
    timed = sorted((poll for poll in polls if poll.time is not None), key=lambda poll: (poll.time or 0.0, poll.source))[
        -MAX_POLLS:
    ]
    if len(timed) < 2:
        return RasVote("not_observable", "two answers of RAS with known times are needed", polls=len(timed))
    span = (timed[-1].time or 0.0) - (timed[0].time or 0.0)
    if span < threshold:
        return RasVote(
            "not_observable",
            f"the answers are only {span:.0f} s apart, of {threshold:.0f}",
            span=span,
            polls=len(timed),
        )
    comparing = _Polls(timed, world_ranks(timed, world_size, ranks), world_size)
    found = [
        one for comm in timed[-1].communicators if (one := comparing.judge(comm, threshold, init_threshold)) is not None
    ]
    found.sort(key=lambda one: (-one.age, -one.size, one.id))
    if not found:
        return RasVote(
            "no",
            f"no communicator stands still with ranks apart, {span:.0f} s, {len(timed)} answers",
            span=span,
            polls=len(timed),
        )
    age = max(one.age for one in found)
    suspects = comparing.suspects(found)
    return RasVote("yes", _detail(found, suspects, age), age, span, len(timed), tuple(found[:SHOWN]), suspects)


def _detail(found: Sequence[PendingCommunicator], suspects: Sequence[RasSuspect], age: float) -> str:
    what = f"{len(found)} communicator{'s' if len(found) > 1 else ''} stood still for {age:.0f} s or more"
    named = [f"{one.state} {_name(one.place)}" for one in suspects[:4]]
    more = f" and {len(suspects) - 4} more" if len(suspects) > 4 else ""
    return f"{what}; they wait for: {', '.join(named)}{more}" if named else what


def _name(place: RasPlace) -> str:
    if place.world_rank is not None:
        return f"rank {place.world_rank}"
    return f"process {place.pid} on {place.host}" if place.pid is not None else f"rank {place.rank} of its communicator"


class _Polls:
    """The answers under comparison, oldest first, with each communicator's place in them."""

    def __init__(self, polls: Sequence[RasReport], world: Mapping[Process, int], world_size: int | None) -> None:
        self._polls = polls
        self._world = world
        self._world_size = world_size
        self._index = [{comm.id: comm for comm in poll.communicators} for poll in polls]
        self._moving = self._movers()
        self._waits: Counter[Process] = Counter()

    def _movers(self) -> set[Process]:
        """The processes that launched something between the last two answers."""
        before, moving = self._index[-2], set()
        for comm in self._polls[-1].communicators:
            old = before.get(comm.id)
            if old is not None and not comm.partial:
                had = {rank.rank: rank.counts for rank in old.ranks}
                moving |= {
                    (rank.host, rank.pid)
                    for rank in comm.ranks
                    if rank.pid is not None and rank.counts and had.get(rank.rank, rank.counts) != rank.counts
                }
        return moving

    def judge(self, comm: RasCommunicator, threshold: float, init_threshold: float) -> PendingCommunicator | None:
        """Tell whether one communicator of the newest answer is pending."""
        states = {rank.state for rank in comm.ranks}
        if states & set(_LEAVING):
            return None
        since = self._since(comm)
        age = (self._polls[-1].time or 0.0) - since
        starting = "init" in states or states >= {"absent", "running"}
        if age < (init_threshold if starting else threshold):
            return None
        present = [rank for rank in comm.ranks if rank.state not in _GONE]
        if starting:
            return self._gathered(
                comm, "init", since, [rank for rank in present if rank.state == "init"] if "running" in states else []
            )
        apart = _apart(comm, present)
        if apart is not None:
            kind, op, odd, ahead = apart
            return self._gathered(comm, kind, since, odd, op=op, ahead=ahead)
        if states & {"missing", "dead"}:
            return self._gathered(comm, "missing", since, [], certain=self._lacks(comm))
        return None

    def _since(self, comm: RasCommunicator) -> float:
        """The time of the earliest answer from which on the communicator did not change."""
        now = {rank.rank: rank.counts for rank in comm.ranks}
        since = self._polls[-1].time or 0.0
        for poll, index in zip(reversed(self._polls[:-1]), reversed(self._index[:-1]), strict=True):
            old = index.get(comm.id)
            if old is None or old.partial != comm.partial or not _same(old, comm, now):
                break
            since = poll.time or 0.0
        return since

    def _lacks(self, comm: RasCommunicator) -> bool:
        """Tell whether a missing rank, when it was last seen, had launched less than the others have now."""
        most = max((_total(rank) for rank in comm.ranks if rank.counts), default=0)
        gone = {rank.rank for rank in comm.ranks if rank.state in _GONE}
        for index in reversed(self._index[:-1]):
            old = index.get(comm.id)
            seen = [rank for rank in old.ranks if rank.rank in gone and rank.counts] if old is not None else []
            if seen:
                return any(_total(rank) < most for rank in seen)
        return False

    def _gathered(
        self,
        comm: RasCommunicator,
        kind: PendingKind,
        since: float,
        odd: Sequence[RasRank],
        *,
        op: str = "",
        ahead: bool = False,
        certain: bool = True,
    ) -> PendingCommunicator:
        most = max((_total(rank) for rank in comm.ranks if rank.counts), default=0)
        lacking = {rank.rank for rank in odd}
        waiting = 0
        for rank in comm.ranks:
            if rank.state not in _GONE and rank.rank not in lacking and rank.pid is not None:
                self._waits[rank.host, rank.pid] += 1
                waiting += 1
        return PendingCommunicator(
            id=comm.id,
            size=comm.size,
            kind=kind,
            op=op,
            since=since,
            age=(self._polls[-1].time or 0.0) - since,
            odd=tuple(self._place(comm, rank, most) for rank in odd),
            missing=tuple(self._place(comm, rank, 0) for rank in comm.ranks if rank.state in {"missing", "absent"}),
            dead=tuple(self._place(comm, rank, 0) for rank in comm.ranks if rank.state == "dead"),
            ahead=ahead,
            certain=certain,
            waiting=waiting if not comm.partial else max(0, comm.size - len(comm.ranks)),
        )

    def _place(self, comm: RasCommunicator, rank: RasRank, most: int) -> RasPlace:
        key = (rank.host, rank.pid) if rank.pid is not None else None
        world = self._world.get(key) if key is not None else None
        if world is None and comm.size == self._world_size:
            world = rank.rank
        lag = max(0, most - _total(rank)) if rank.counts and not comm.partial else 0
        return RasPlace(rank.rank, world, rank.host, rank.pid, rank.gpu, lag, key in self._moving)

    def suspects(self, found: Sequence[PendingCommunicator]) -> tuple[RasSuspect, ...]:
        """Give whom the others wait for: those who never wait first, then the dead, then in most communicators."""
        held: dict[Process | tuple[str, str, int], RasSuspect] = {}
        for one in found:
            for state, places in (("dead", one.dead), ("missing", one.missing), ("behind", one.odd)):
                for place in places:
                    named = (place.host, place.pid) if place.pid is not None else None
                    key = named or ("", one.id, place.rank)
                    old = held.get(key)
                    waits = self._waits[named] if named else 0
                    lacks = old.lacks + 1 if old else 1
                    held[key] = RasSuspect(
                        old.place if old else place, _worse(old.state if old else state, state), lacks, waits
                    )
        order = {"dead": 0, "missing": 1, "behind": 2}
        ranked = sorted(
            held.values(),
            key=lambda one: (
                one.waits > 0,
                order[one.state],
                one.place.moves,
                -one.lacks,
                one.place.world_rank or 0,
                one.place.host,
                one.place.rank,
            ),
        )
        return tuple(ranked[:SHOWN])


def _worse(one: str, other: str) -> str:
    return min(one, other, key=("dead", "missing", "behind").index)


def _same(old: RasCommunicator, new: RasCommunicator, now: Mapping[int, Counts]) -> bool:
    """Tell whether no rank that both answers count launched anything between them."""
    if new.partial:
        return old.levels == new.levels and {one.rank for one in old.ranks} == {one.rank for one in new.ranks}
    return all(not rank.counts or not now.get(rank.rank) or now[rank.rank] == rank.counts for rank in old.ranks)


def _total(rank: RasRank) -> int:
    return sum(count for _, count in rank.counts)


def _apart(comm: RasCommunicator, present: Sequence[RasRank]) -> tuple[PendingKind, str, list[RasRank], bool] | None:
    """Give how the ranks differ in what they launched: the kind, the operation, the odd ones, whether these are ahead."""
    if comm.partial:
        return _apart_text(comm, present)
    vectors = Counter(rank.counts for rank in present)
    if len(vectors) < 2:
        return None
    totals = Counter(_total(rank) for rank in present)
    op = _differing(vectors)
    if len(totals) == 1:
        usual = min(vectors, key=lambda counts: (-vectors[counts], counts))
        return "disagree", op, [rank for rank in present if rank.counts != usual], False
    most = max(totals)
    behind = [rank for rank in present if _total(rank) < most]
    front = [rank for rank in present if _total(rank) == most]
    # one rank that launched what nobody else did is the odd one, not the thousands that did not
    return ("behind", op, behind, False) if len(behind) <= len(front) else _fewer(op, behind, front)


def _fewer(op: str, behind: list[RasRank], front: list[RasRank]) -> tuple[PendingKind, str, list[RasRank], bool]:
    least = min(_total(rank) for rank in behind)
    last = [rank for rank in behind if _total(rank) == least]
    return ("behind", op, last, False) if len(last) <= len(front) else ("behind", op, front, True)


def _apart_text(
    comm: RasCommunicator, present: Sequence[RasRank]
) -> tuple[PendingKind, str, list[RasRank], bool] | None:
    if len({(level.op, level.count) for level in comm.levels}) < 2:
        return None
    op = max(Counter(level.op for level in comm.levels).items(), key=lambda item: (item[1], item[0]))[0]
    at = {level.count: level.ranks for level in comm.levels if level.op == op}
    least = min(at)
    behind = [rank for rank in present if dict(rank.counts).get(op) == least]
    return ("behind", op, behind, False) if behind else ("behind", op, [rank for rank in present if rank.counts], True)


def _differing(vectors: Mapping[Counts, int]) -> str:
    """Give the operation whose counts are furthest apart."""
    spread: dict[str, tuple[int, int]] = {}
    for counts in vectors:
        for op, count in counts:
            low, high = spread.get(op, (count, count))
            spread[op] = (min(low, count), max(high, count))
    return max(spread, key=lambda op: (spread[op][1] - spread[op][0], op), default="")
