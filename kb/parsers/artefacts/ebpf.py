"""Output of eBPF programs: bpftrace (JSON lines and text), bcc's offcputime, and bcc's histograms.

Such output says neither host nor process nor time. Our own programs print ticks and key their maps by process; for others
the caller says what it knows, or the file starts with an envelope: one line or one document

    {"schema": "signalbox.ebpf/1", "host": …, "pid": …, "rank": …, "tool": …, "start": …, "end": …, "unit": "us", "records": […]}

with the raw output in `records` (objects or lines) or below it. Kinds of the events given here: `d_state` (a thread in
uninterruptible sleep for 5 s or more), `stuck_call` (a CUDA or NCCL call, a collective or a pass that has not ended),
`cq_stall` (completion queues polled with nothing found), `slow_io`, and `ebpf_line` (what else was printed).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median
from typing import Any, Final

import msgspec

from kb.model import Event, Gap, Resource, Scalar
from kb.parsers.schedulers.jsondocs import integer, mapping, string

MAX_BYTES: Final = 16 << 20
MAX_LINES: Final = 200_000
MAX_SERIES: Final = 20_000
MAX_POINTS: Final = 100_000
MAX_STACKS: Final = 20_000
MAX_FRAMES: Final = 256
MAX_EVENTS: Final = 2_000
SCHEMA: Final = "signalbox.ebpf/1"

Buckets = tuple[tuple[float, float, int], ...]


@dataclass(frozen=True, slots=True)
class EbpfLimits:
    """From how many seconds on something is told as an event."""

    d_state: float = 5.0
    call: float = 30.0
    cq_stall: float = 30.0
    slow_io: float = 1.0


@dataclass(frozen=True, slots=True)
class EbpfSeries:
    """One map by one key. `unit`: "us", "ns", "ms", "s" or "count", from the map's name. `call`: the function, or "".

    `points`: (seconds since the epoch or None, value) at each print; of a histogram its count. `buckets`: a histogram's
    (low, high, count) over the whole file, in `unit`.
    """

    name: str
    unit: str
    resource: Resource
    call: str = ""
    points: tuple[tuple[float | None, float], ...] = ()
    buckets: Buckets = ()


@dataclass(frozen=True, slots=True)
class OffCpuStack:
    """A stack that was off the CPU for `seconds` in all, innermost frame first."""

    command: str
    resource: Resource
    frames: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class EbpfReading:
    """One file of output. `ticks`: when the program printed; `seconds`: how long it ran, where that is known."""

    source: str
    tool: str = ""
    resource: Resource = field(default_factory=Resource)
    seconds: float | None = None
    ticks: tuple[float, ...] = ()
    series: tuple[EbpfSeries, ...] = ()
    stacks: tuple[OffCpuStack, ...] = ()
    events: tuple[Event, ...] = ()


def read_ebpf(
    data: bytes,
    source: str,
    resource: Resource | None = None,
    tool: str = "",
    limits: EbpfLimits | None = None,
) -> tuple[EbpfReading | None, tuple[Gap, ...]]:
    """Read one file. `resource` and `tool` say what the caller knows; an envelope in the file knows better."""
    gaps: list[Gap] = []
    if len(data) > MAX_BYTES:
        gaps.append(_gap("ebpf-cut", source, f"more than {MAX_BYTES >> 20} MiB: the rest was not read", str(len(data))))
    text = data[:MAX_BYTES].decode("utf-8", "replace")
    lines: list[Any] = text.split("\n", MAX_LINES)
    if len(lines) > MAX_LINES:
        gaps.append(_gap("ebpf-cut", source, f"more than {MAX_LINES} lines: the rest was not read"))
        del lines[MAX_LINES:]
    head, lines = _envelope(text, lines)
    reading = _Reading(
        source, _who(head, resource or Resource()), string(head.get("tool"), 80) or tool, limits or EbpfLimits()
    )
    for line in lines:
        reading.feed(line)
    done = reading.close(head)
    if not (done.series or done.stacks or done.events or done.ticks or reading.known):
        return None, (*gaps, _gap("ebpf-unreadable", source, "neither bpftrace's output nor offcputime's"))
    if reading.odd:
        gaps.append(_gap("ebpf-odd-lines", source, "lines of no known form", str(reading.odd)))
    if reading.full:
        gaps.append(_gap("ebpf-cut", source, "more series, stacks or lines than are kept", str(reading.full)))
    if reading.lost:
        gaps.append(_gap("ebpf-lost", source, "the kernel lost events: counts are too low", str(reading.lost)))
    return done, tuple(gaps)


def _gap(code: str, source: str, reason: str, got: str = "") -> Gap:
    return Gap(code, source, reason, got=got, rules_out="where threads wait in the kernel, in locks and in calls")


def _object(text: str) -> Mapping[str, Any]:
    try:
        return mapping(msgspec.json.decode(text.encode("utf-8", "replace")))
    except (msgspec.MsgspecError, RecursionError):
        return {}


def _envelope(text: str, lines: list[Any]) -> tuple[Mapping[str, Any], list[Any]]:
    """Take our envelope off: a first line, or the whole document."""
    if SCHEMA not in text[:4096]:
        return {}, lines
    first = _object(lines[0]) if lines else {}
    head = first if first.get("schema") == SCHEMA else _object(text)
    if head.get("schema") != SCHEMA:
        return {}, lines
    records = head.get("records")
    below = lines[1:] if head is first else []
    return head, [*(records[:MAX_LINES] if isinstance(records, list) else []), *below]


def _who(head: Mapping[str, Any], known: Resource) -> Resource:
    node, pid, rank = string(head.get("host"), 253), integer(head.get("pid")), integer(head.get("rank"))
    return replace(
        known,
        node=node or known.node,
        pid=pid if pid is not None else known.pid,
        rank=rank if rank is not None else known.rank,
    )


# --- line by line ------------------------------------------------------------------------------------------------------

_TICK = re.compile(r"^tick (\d{1,12}) (\d{1,20})\s*$")
_OURS = re.compile(r"^signalbox (\w{1,20}) \d{1,3}\s*$")
_DSTATE = re.compile(r"^dstate (\d{1,9}) (\d{1,9}) (\d{1,18}) us ([^\n]{0,64})\n(.{0,8000})", re.DOTALL)
_TEXT_MAP = re.compile(r"^@(\w{0,60})(?:\[([^\n]{0,300})\])?:(?: (-?\d{1,20}|[^\n]{1,200}))?$")
_TEXT_BUCKET = re.compile(r"^[\[(](-?\d{1,18}[KMGT]?|\.\.\.)(?:, (-?\d{1,18}[KMGT]?|\.\.\.))?[\])] {1,20}(\d{1,18}) \|")
_BCC_HEAD = re.compile(r"^ {1,16}([nmu]?secs) {1,16}: count")
_BCC_BUCKET = re.compile(r"^ {0,16}(\d{1,19}) -> (\d{1,19}) {1,16}: (\d{1,18}) ")
_FOLDED = re.compile(r"^([^;\n]{1,64})((?:;[^;\n]{0,512}){1,300}) (\d{1,18})$")
_STACK_FRAME = re.compile(r"^ {4,16}(?:(?:0x)?[0-9a-f]{8,16} )?([A-Za-z_\[<~.$][^\n]{0,300}?)(?:\+0x[0-9a-f]{1,8})?$")
_STACK_WHO = re.compile(r"^ {4}- {1,20}(\S[^\n]{0,40}?) \((\d{1,9})\)\s*$")
_STACK_TIME = re.compile(r"^ {8}(\d{1,18})\s*$")
_BIOSNOOP = re.compile(
    r"^(\d{1,9}\.\d{1,9}) {1,12}(\S[^\n]{0,16}?) {1,12}(\d{1,9}) {1,12}(\S{1,32}) {1,12}([RW]) {1,12}(\S{1,20}) {1,12}(\d{1,12}) {1,12}(\d{1,9}\.\d{1,6})\s*$"
)
_BANNER = re.compile(
    r"^(?: {4,16}--?\s*$|Tracing |Attach(?:ing|ed) |Press |Detaching|WARNING|ERROR|TIME\(s\)|pid = |tid = |\s*$)"
)
_UNITS: Final[Mapping[str, str]] = {"usecs": "us", "nsecs": "ns", "msecs": "ms", "secs": "s"}
_FACTOR: Final[Mapping[str, float]] = {"us": 1e-6, "ns": 1e-9, "ms": 1e-3, "s": 1.0}
_SUFFIX: Final[Mapping[str, int]] = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_OPEN: Final[Mapping[str, tuple[str, str]]] = {
    "blocked_ns": ("d_state", ""),
    "in_call_ns": ("stuck_call", "in_call"),
    "in_collective_ns": ("stuck_call", "collective"),
    "in_backward_ns": ("stuck_call", "backward"),
    "in_forward_ns": ("stuck_call", "forward"),
}


@dataclass(slots=True)
class _Gathered:
    """A series while it grows."""

    points: list[tuple[float | None, float]] = field(default_factory=list)
    buckets: dict[tuple[float, float], int] = field(default_factory=dict)


@dataclass(slots=True)
class _Reading:
    """Where the reading of one file stands."""

    source: str
    who: Resource
    tool: str
    limits: EbpfLimits
    series: dict[tuple[str, str], _Gathered] = field(default_factory=dict)
    stacks: list[OffCpuStack] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    ticks: list[float] = field(default_factory=list)
    labels: dict[tuple[str, str], str] = field(default_factory=dict)
    waits: dict[tuple[str, str, int], tuple[float, float | None, dict[tuple[str, str], str]]] = field(
        default_factory=dict
    )
    now: float | None = None
    now_ns: int = 0
    points: int = 0
    frames: list[str] = field(default_factory=list)
    owner: tuple[str, int] | None = None
    current: tuple[str, str] | None = None  # the map that rows of a text histogram belong to
    known: int = 0
    odd: int = 0
    full: int = 0
    lost: int = 0

    def feed(self, line: Any) -> None:
        """Take one line, or one record of an envelope."""
        if isinstance(line, str):
            line = line[:MAX_BYTES].rstrip()
            if not line.startswith("{"):
                self._text(line[:16384])
                return
            line = _object(line)
        record = mapping(line)
        kind, body = record.get("type"), record.get("data")
        if not isinstance(kind, str):
            self.odd += 1
        elif kind in {"printf", "time", "cat", "join", "syscall"}:
            self._printed(string(body, 16384))
        elif kind in {"map", "hist", "lhist", "stats"}:
            for name, value in mapping(body).items():
                self._map(name.lstrip("@")[:60], value)
        elif kind == "lost_events":
            self.lost += integer(mapping(body).get("events")) or 0
        elif kind in {"attached_probes", "tseries"}:
            self.known += 1
        else:
            self.odd += 1

    # what programs print

    def _printed(self, text: str) -> None:
        if tick := _TICK.match(text):
            self.now, self.now_ns = float(tick[1]), int(tick[2])
            self.labels = {}
            if len(self.ticks) < MAX_POINTS:
                self.ticks.append(self.now)
        elif ours := _OURS.match(text):
            self.tool = ours[1]
        elif dstate := _DSTATE.match(text):
            seconds = int(dstate[3]) / 1e6
            if seconds >= self.limits.d_state:
                stack = _frames(dstate[5])
                self._event(
                    _blocked(self._at(int(dstate[1])), int(dstate[2]), dstate[4].strip(), seconds, stack, ended=True)
                )
        elif text.strip():
            self._event(("ebpf_line", self.tool, text.strip()[:1000], self.who, {}))

    def _event(self, told: tuple[str, str, str, Resource, Mapping[str, Scalar]]) -> None:
        kind, reason, message, who, fields = told
        if len(self.events) < MAX_EVENTS:
            self.events.append(Event(self.source, self.now, kind, reason, message, who, fields))
        else:
            self.full += 1

    def _at(self, pid: int | None) -> Resource:
        """Give who a process is: the rank that the caller knows belongs to the pid that the caller knows."""
        if pid is None or pid == self.who.pid:
            return self.who
        return replace(self.who, pid=pid, rank=self.who.rank if self.who.pid is None else None)

    # maps

    def _map(self, name: str, value: Any) -> None:
        self.known += 1
        if isinstance(value, dict) and not _is_stats(value):
            for key, one in value.items():
                self._value(name, str(key)[:300], one)
        else:
            self._value(name, "", value)

    def _value(self, name: str, key: str, value: Any) -> None:
        if name in _OPEN:
            self._waits(name, key, integer(value))
        elif isinstance(value, str):
            if len(self.labels) < MAX_SERIES:
                self.labels[name, key] = value[:16384]
        elif isinstance(value, list):
            self._histogram(name, key, value)
        else:
            number = mapping(value).get("average", value) if isinstance(value, dict) else value
            if (right := _number(number)) is not None:
                self._point(name, key, right)
            else:
                self.odd += 1

    def _gathered(self, name: str, key: str) -> _Gathered | None:
        found = self.series.get((name, key))
        if found is None and len(self.series) < MAX_SERIES:
            found = self.series[name, key] = _Gathered()
        if found is None or self.points >= MAX_POINTS:
            self.full += 1
            return None
        self.points += 1
        return found

    def _point(self, name: str, key: str, value: float) -> None:
        found = self._gathered(name, key)
        if found is not None:
            found.points.append((self.now, value))

    def _histogram(self, name: str, key: str, rows: list[Any]) -> None:
        found = self._gathered(name, key)
        if found is None:
            return
        total = 0
        for row in rows[:512]:
            part = mapping(row)
            low, high, count = integer(part.get("min")), integer(part.get("max")), integer(part.get("count"))
            if count is not None and count >= 0 and (low is not None or high is not None):
                low, high = low if low is not None else 0, high if high is not None else (low or 0)
                span = (float(low), float(max(low, high)))
                found.buckets[span] = found.buckets.get(span, 0) + count
                total += count
        found.points.append((self.now, float(total)))

    def _waits(self, name: str, key: str, since: int | None) -> None:
        """Note that something has not ended at this tick. Labels of the same tick come later: they are looked up at the end."""
        if since is None or not 0 < since <= self.now_ns:
            return
        if len(self.waits) < MAX_SERIES or (name, key, since) in self.waits:
            self.waits[name, key, since] = ((self.now_ns - since) / 1e9, self.now, self.labels)

    # text forms

    def _text(self, line: str) -> None:
        if bucket := _TEXT_BUCKET.match(line):
            self._bucket(_bound(bucket[1]), _bound(bucket[2] or bucket[1]), int(bucket[3]))
        elif bucket := _BCC_BUCKET.match(line):
            self._bucket(float(bucket[1]), float(bucket[2]), int(bucket[3]))
        elif head := _BCC_HEAD.match(line):
            self.current = (f"latency_{_UNITS[head[1]]}", "")
        elif found := _TEXT_MAP.match(line):
            self._text_map(found)
        elif not self._stack_line(line) and not self._slow_io(line) and not _BANNER.match(line):
            if _TICK.match(line) or _OURS.match(line):
                self._printed(line)
            else:
                self.odd += 1

    def _bucket(self, low: float, high: float, count: int) -> None:
        if self.current is None:
            self.odd += 1
            return
        found = self._gathered(*self.current)
        if found is not None:
            found.buckets[low, max(low, high)] = found.buckets.get((low, max(low, high)), 0) + count

    def _text_map(self, found: re.Match[str]) -> None:
        self.known += 1
        name, key = found[1], ",".join(part.strip() for part in (found[2] or "").split(","))
        self.current = (name, key)
        if found[3] is not None:
            value = found[3].strip()
            self._value(name, key, int(value) if re.fullmatch(r"-?[0-9]{1,20}", value) else value)

    def _stack_line(self, line: str) -> bool:
        """Read offcputime's lines: folded, or frame by frame with the total below."""
        if folded := _FOLDED.match(line):
            frames = tuple(one for one in reversed(folded[2][1:].split(";")) if one not in {"-", "--", ""})
            self._stack(folded[1].strip(), self.who, frames, int(folded[3]))
        elif who := _STACK_WHO.match(line):
            self.owner = (who[1], int(who[2]))
        elif self.owner is not None and (total := _STACK_TIME.match(line)):
            self._stack(self.owner[0], self._at(int(self.owner[1])), tuple(self.frames), int(total[1]))
            self.frames, self.owner = [], None
        elif frame := _STACK_FRAME.match(line):
            if frame[1] not in {"--", "-"} and len(self.frames) < MAX_FRAMES:
                self.frames.append(frame[1])
        else:
            return False
        return True

    def _stack(self, command: str, who: Resource, frames: tuple[str, ...], micros: int) -> None:
        self.known += 1
        if len(self.stacks) >= MAX_STACKS:
            self.full += 1
            return
        seconds = micros / 1e6
        self.stacks.append(OffCpuStack(command, who, tuple(one[:300] for one in frames[:MAX_FRAMES]), seconds))
        if seconds >= self.limits.d_state and re.search(r"state[ =]?2\b|dstate", self.tool):
            self._event(_blocked(who, None, command, seconds, frames, ended=False))

    def _slow_io(self, line: str) -> bool:
        row = _BIOSNOOP.match(line)
        if row is None:
            return False
        self.known += 1
        seconds = round(float(row[8]) / 1e3, 6)
        if seconds >= self.limits.slow_io:
            fields: dict[str, Scalar] = {
                "seconds": seconds,
                "disk": row[4],
                "direction": row[5],
                "comm": row[2].strip(),
            }
            self._event(
                ("slow_io", "biosnoop", f"{row[5]} on {row[4]} took {seconds:.1f} s", self._at(int(row[3])), fields)
            )
        return True

    # the end

    def close(self, head: Mapping[str, Any]) -> EbpfReading:
        """Give what was read."""
        series = tuple(self._closed(name, key, one) for (name, key), one in self.series.items())
        begin, end = _number(head.get("start")), _number(head.get("end"))
        spans = [end - begin] if begin is not None and end is not None else []
        spans += [self.ticks[-1] - self.ticks[0] + _period(self.ticks)] if len(self.ticks) > 1 else []
        self._open_events()
        self._stalled(series)
        return EbpfReading(
            source=self.source,
            tool=self.tool,
            resource=self.who,
            seconds=next((span for span in spans if span > 0), None),
            ticks=tuple(self.ticks),
            series=series,
            stacks=tuple(self.stacks),
            events=tuple(self.events),
        )

    def _closed(self, name: str, key: str, one: _Gathered) -> EbpfSeries:
        pid, _, rest = key.partition(",")
        number = _pid(pid)
        who = self._at(number) if number is not None else self.who
        call = rest if number is not None else key
        buckets = tuple((low, high, count) for (low, high), count in sorted(one.buckets.items()))
        return EbpfSeries(name, _unit(name), who, _call(call), tuple(one.points), buckets)

    def _open_events(self) -> None:
        """Tell what had not ended when it was last seen, once each."""
        told = {
            (one.resource.pid, one.fields["tid"]): one.fields["seconds"] for one in self.events if one.kind == "d_state"
        }
        longest = sorted(self.waits.items(), key=lambda item: (-item[1][0], item[0]))
        for (name, key, _), (seconds, at, labels) in longest:
            pid, _, tid = key.partition(",")
            process, thread = _pid(pid), _pid(tid)
            if process is None:
                continue
            who, self.now = self._at(process), at
            kind, call = _OPEN[name]
            ended = told.get((who.pid, thread))
            if kind == "d_state" and isinstance(ended, float) and ended >= seconds:
                continue  # the line at its end has told it
            if kind == "d_state" and seconds >= self.limits.d_state:
                stack = _frames(labels.get(("blocked_stack", key), ""))
                self._event(_blocked(who, thread, labels.get(("blocked_comm", key), ""), seconds, stack, ended=False))
            elif kind == "stuck_call" and seconds >= self.limits.call:
                named = _call(labels.get((call, key), call))
                fields: dict[str, Scalar] = {"seconds": seconds, "call": named, "tid": thread}
                self._event((kind, named, f"{named} has not ended for {seconds:.0f} s", who, fields))

    def _stalled(self, series: Sequence[EbpfSeries]) -> None:
        """Tell completion queues that were polled to the end with nothing found."""
        named: dict[int | None, dict[str, dict[float | None, float]]] = {}
        for one in series:
            if one.name in {"posted", "polls", "completions"}:
                named.setdefault(one.resource.pid, {})[one.name] = dict(one.points)
        for pid, maps in sorted(named.items(), key=lambda item: item[0] or 0):
            polls, done, posted = (maps.get(name, {}) for name in ("polls", "completions", "posted"))
            last = max((at for at, value in done.items() if at is not None and value > 0), default=None)
            polled = [at for at, value in polls.items() if at is not None and value > 0 and (last is None or at > last)]
            if not polled:
                continue
            since = last if last is not None else min(polled) - _period(self.ticks)
            seconds, self.now = max(polled) - since, max(polled)
            if seconds >= self.limits.cq_stall:
                fields: dict[str, Scalar] = {
                    "seconds": seconds,
                    "polls": sum(value for at, value in polls.items() if at in polled),
                    "posted": sum(value for at, value in posted.items() if at is not None and at > since),
                    "ever": last is not None,
                }
                self._event(
                    (
                        "cq_stall",
                        "no completion",
                        f"polled for {seconds:.0f} s with no completion",
                        self._at(pid),
                        fields,
                    )
                )


def _number(value: Any) -> float | None:
    right = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e19
    return float(value) if right else None


def _is_stats(value: Mapping[str, Any]) -> bool:
    return value.keys() >= {"count", "average"}


def _period(ticks: Sequence[float]) -> float:
    return median(later - earlier for earlier, later in pairwise(ticks)) if len(ticks) > 1 else 0.0


def _pid(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _unit(name: str) -> str:
    return next((unit for unit in ("us", "ns", "ms") if name.endswith(f"_{unit}")), "count")


def _call(text: str) -> str:
    """Give the function of a probe's name: `uretprobe:/lib/x.so:f` is f."""
    return text.rpartition(":")[2][:200]


def _bound(text: str) -> float:
    if text == "...":
        return 0.0
    return float(text[:-1]) * _SUFFIX[text[-1]] if text[-1] in _SUFFIX else float(text)


def _frames(text: str) -> tuple[str, ...]:
    """Give the functions of a stack as bpftrace prints it, one a line, innermost first, without offsets."""
    lines = (line.strip() for line in text.split("\n", MAX_FRAMES)[:MAX_FRAMES])
    return tuple(re.sub(r"\+(?:0x)?[0-9a-f]{1,8}$", "", line[:300]) for line in lines if line)


_BLOCKED_ON: Final[tuple[tuple[str, re.Pattern[str]], ...]] = (
    ("gpu", re.compile(r"^(?:_?nv\d|nv_|nvidia|uvm_|rm_|os_acquire_|amdgpu|kfd_|_nv)")),
    (
        "network storage",
        re.compile(
            r"^_{0,2}(?:nfs|rpc_|xprt|ll_|ptlrpc|osc_|cl_(?:io|sync|lock)|ldlm|mdc_|ceph|fuse|request_wait_answer|gpfs|mm_?fs|cifs|smb|wekafs|beegfs|netfs)"
        ),
    ),
    (
        "storage",
        re.compile(
            r"^_{0,2}(?:io_schedule|blk_|bio_|submit_bio|nvme|ext4|xfs|btrfs|jbd2|folio_wait|wait_on_page|filemap_|sync_(?:inode|file)|dm_|md_|scsi)"
        ),
    ),
    ("network", re.compile(r"^_{0,2}(?:mlx[45]|ib_|rdma_|ucma|cma_|uverbs|efa_|irdma|bnxt)")),
    (
        "memory",
        re.compile(
            r"^_{0,2}(?:try_to_free|shrink_|mem_cgroup|do_swap|swap_|compact_|migrate_pages|reclaim|balance_dirty|oom_)"
        ),
    ),
    ("lock", re.compile(r"^_{0,2}(?:futex|mutex_lock|rwsem_|down_(?:read|write)|rt_mutex)")),
)


def blocked_on(frames: Iterable[str]) -> str:
    """Say what a kernel stack waits for: "gpu", "network storage", "storage", "network", "memory", "lock" or ""."""
    names = [one.rpartition("`")[2].strip() for one in frames]
    return next((what for what, pattern in _BLOCKED_ON if any(pattern.match(name) for name in names)), "")


def _blocked(
    who: Resource, tid: int | None, command: str, seconds: float, stack: Sequence[str], *, ended: bool
) -> tuple[str, str, str, Resource, Mapping[str, Scalar]]:
    on = blocked_on(stack)
    fields: dict[str, Scalar] = {
        "seconds": seconds,
        "tid": tid,
        "comm": command[:64],
        "ended": ended,
        "blocked_on": on,
        "stack": "\n".join(stack[:60])[:6000],
    }
    message = f"{command[:64] or 'a thread'} was in uninterruptible sleep for {seconds:.1f} s" + (
        f", on {on}" if on else ""
    )
    return "d_state", on or "uninterruptible sleep", message, who, fields
