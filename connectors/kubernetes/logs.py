"""Fetches the logs of a job's pods in parallel: whole logs of suspicious pods first, and the ends of the others.

The server counts lines from the end and bytes from there on, so a truncated response lacks the newest lines, which matter
most. They are requested separately. The log before the last restart precedes the current one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime

from connectors.base.contract import CollectionRequest, SourceFailed, Spool, safe_name
from connectors.kubernetes.api import KubernetesApi, is_name, is_namespace
from kb.model import Gap, Resource
from kb.parsers.schedulers.pods import Pod, Ranks

WHOLE = 64  # pods
SIDE_BY_SIDE = 16
MOST_BYTES = 4 << 20  # of a container
MOST_LINES = 5000
END_LINES = 200  # of pods that are not fetched whole, and of truncated responses
END_BYTES = 256 << 10
LEAST_BYTES = 4 << 10
POD_SECONDS = 20.0
_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)(?: |\Z)")
_NO_LOG = (
    b"unable to retrieve container logs for ",
    b"failed to try resolving symlinks in path ",
    b"failed to open log file ",
)


@dataclass(frozen=True, slots=True)
class LogRequest:
    """One log to fetch: the container, the limits, the target file. `previous`: also fetch the log before the restart."""

    pod: Pod
    container: str
    path: str
    rank: int | None
    previous: bool
    whole: bool
    lines: int | None
    bytes: int


@dataclass(slots=True)
class LogOutcome:
    """The result of one log: lines written, and what was truncated or failed."""

    lines: int = 0
    cut: bool = False
    ended: bool = False  # only the end was requested, and there was more
    lost: bool = False  # the node no longer has it
    failed: SourceFailed | None = None
    undated: int = 0


def plan_logs(pods: Sequence[Pod], ranks: Ranks, request: CollectionRequest, folder: str) -> tuple[LogRequest, ...]:
    """Return which logs to fetch, in which order and how much of each, within the limits of the request."""
    good = [item for item in pods if is_name(item.name) and is_namespace(item.namespace)]
    known = {item.uid: ranks.of.get(item.uid, ()) for item in good}
    good.sort(key=lambda item: (not item.suspicious, known[item.uid][:1] or (1 << 40,), item.name))
    whole = len(good) if request.deep else min(WHOLE, len(good))
    logs = [
        (at < whole, pod, name) for at, pod in enumerate(good) for name in (pod.container, *pod.odd) if is_name(name)
    ]
    runs = sum(1 + bool(pod.restarts) for first, pod, _ in logs if first)
    shares = _shares(request, runs, sum(not first for first, _, _ in logs))
    taken: Counter[str] = Counter()
    found = []
    for first, pod, name in logs:
        mine = known[pod.uid]
        who = f"rank-{mine[0]}" if len(mine) == 1 else safe_name(pod.name)
        who = who if name == pod.container else f"{who}.{safe_name(name)}"
        taken[who] += 1
        who = who if taken[who] == 1 else f"{who}-{taken[who]}"
        lines, size = shares[first]
        again = first and bool(pod.restarts) and name == pod.container
        rank = mine[0] if len(mine) == 1 else None
        found.append(
            LogRequest(pod, name, f"logs/{folder}/{who}.log", rank, again or name in pod.odd, first, lines, size)
        )
    return tuple(found)


def _shares(request: CollectionRequest, runs: int, ends: int) -> Mapping[bool, tuple[int | None, int]]:
    """Lines and bytes per log: whole logs share three quarters, or everything if there are no others."""
    part = 0.75 if ends else 1.0
    size = max(LEAST_BYTES, min(MOST_BYTES, int(request.bounds.log_bytes * part) // max(1, runs)))
    lines = max(1, min(MOST_LINES, int(request.bounds.log_lines * part) // max(1, runs)))
    end_size = max(1 << 10, min(END_BYTES, int(request.bounds.log_bytes * (1 - part)) // max(1, ends)))
    end_lines = max(1, min(END_LINES, int(request.bounds.log_lines * (1 - part)) // max(1, ends)))
    if request.deep:
        return {True: (None, max(LEAST_BYTES, request.bounds.log_bytes // max(1, runs))), False: (end_lines, end_size)}
    return {True: (lines, size), False: (end_lines, end_size)}


def fetch_logs(
    api: KubernetesApi, wanted: Sequence[LogRequest], request: CollectionRequest, spool: Spool, source: str
) -> Iterator[Gap]:
    """Fetch the logs and write them. Yield one gap for each reason why something is missing."""
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        outcomes = list(pool.map(lambda log_request: _fetch_log(api, log_request, request, spool), wanted))
    yield from _gaps(wanted, outcomes, source)


def _fetch_log(api: KubernetesApi, wanted: LogRequest, request: CollectionRequest, spool: Spool) -> LogOutcome:
    out = LogOutcome()
    try:
        lines = _runs(api, wanted, request, out)
        if lines:
            lines.sort(key=lambda line: line[:30])
            spool.append(wanted.path, b"".join(line + b"\n" for line in lines))
            who = Resource(node=wanted.pod.node, rank=wanted.rank, container=wanted.pod.name)
            spool.describe(wanted.path, resource=who, query=f"log of {wanted.pod.name}, container {wanted.container}")
        out.lines = len(lines)
    except SourceFailed as failed:
        out.failed = failed
    return out


def _runs(api: KubernetesApi, wanted: LogRequest, request: CollectionRequest, out: LogOutcome) -> list[bytes]:
    """Return the lines before and after the last restart; either may be missing."""
    found: list[bytes] = []
    for previous in (True, False) if wanted.previous else (False,):
        try:
            found += _log(api, wanted, request, out, previous)
        except SourceFailed as failed:
            # "previous terminated container … not found", "container … is waiting to start": there is no log
            if failed.kind != "refused":
                raise
            out.lost = out.lost or (previous and bool(wanted.pod.restarts))
    return found


def _log(
    api: KubernetesApi, wanted: LogRequest, request: CollectionRequest, out: LogOutcome, previous: bool
) -> list[bytes]:
    deadline = request.deadline.sooner(POD_SECONDS)
    since = None if request.window.start is None else _iso(request.window.start)
    params = {
        "container": wanted.container,
        "previous": "true" if previous else None,
        "sinceTime": None if since is None else since[:19] + "Z",
        "tailLines": wanted.lines,
    }
    namespace, pod = wanted.pod.namespace, wanted.pod.name
    answer = api.log(namespace, pod, params, wanted.bytes, deadline)
    lines = _stamped(answer.body, request, out)
    if answer.cut or len(answer.body) >= wanted.bytes:
        out.cut = True
        held = set(lines)
        tail = api.log(
            namespace, pod, {**params, "tailLines": min(END_LINES, wanted.lines or END_LINES)}, END_BYTES, deadline
        )
        lines += [line for line in _stamped(tail.body, request, out) if line not in held]
    elif wanted.lines is not None and answer.body.count(b"\n") >= wanted.lines:
        out.ended = True
    return lines


def _iso(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")


def _stamped(body: bytes, request: CollectionRequest, out: LogOutcome) -> list[bytes]:
    """Return the lines within the window, with UTC times of nine digits. A last line without an end was truncated."""
    since, until = (b"" if item is None else _iso(item).encode() for item in (request.window.start, request.window.end))
    found: list[bytes] = []
    last = b""
    for line in body.split(b"\n")[:-1]:
        stamp = _STAMP.match(line)
        if stamp is not None:
            last = _utc(stamp)
            text = line[stamp.end() :]
        elif line.startswith(_NO_LOG):
            out.lost = True
            continue
        elif not last:
            out.undated += 1
            continue
        else:
            text = line
        if last >= since and (not until or last < until):
            found.append(last + b" " + text.replace(b"\r", b"").replace(b"\x00", b""))
    if not body.endswith(b"\n") and body.startswith(_NO_LOG):
        out.lost = True
    return found


def _utc(stamp: re.Match[bytes]) -> bytes:
    clock, digits, zone = stamp[1], (stamp[2] or b"").ljust(9, b"0"), stamp[3]
    if zone != b"Z":
        local = datetime.fromisoformat((clock + zone).decode())
        clock = local.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S").encode()
    return clock + b"." + digits + b"Z"


@dataclass(slots=True)
class _GapGroup:
    """The logs that share one reason."""

    logs: list[LogRequest] = field(default_factory=list)
    example: SourceFailed | None = None


def _gaps(wanted: Sequence[LogRequest], outcomes: Sequence[LogOutcome], source: str) -> Iterator[Gap]:
    heaps: dict[str, _GapGroup] = {}
    for item, out in zip(wanted, outcomes, strict=True):
        if out.failed is not None:
            heap = heaps.setdefault(f"source_{out.failed.kind}", _GapGroup())
            heap.example = heap.example or out.failed
            heap.logs.append(item)
        for word, holds in (
            ("cut", out.cut),
            ("ended", out.ended and item.whole),
            ("lost", out.lost),
            ("undated", bool(out.undated)),
        ):
            if holds:
                heaps.setdefault(word, _GapGroup()).logs.append(item)
    ends = [log_request for log_request in wanted if not log_request.whole]
    if ends:
        heaps["ends"] = _GapGroup(ends)
    for word, heap in heaps.items():
        yield _gap(word, heap, len(wanted), source)


def _gap(word: str, heap: _GapGroup, of: int, source: str) -> Gap:
    scope = _names(log.pod.name for log in heap.logs)
    first = heap.logs[0]
    asked, got = f"logs of {of} containers", f"{of - len(heap.logs)} of {of} unaffected"
    if heap.example is not None:
        reason = f"{len(heap.logs)} of {of} logs could not be fetched: {heap.example}"
        return Gap(word, source, reason, scope=scope, asked=asked, got=got, rules_out="what these pods wrote")
    code, reason, out = {
        "cut": ("logs_cut", f"longer than {first.bytes:,} bytes: the middle is missing", "the missing middle"),
        "ended": ("logs_cut", f"only the last {first.lines or 0:,} lines were requested", "earlier lines"),
        "ends": (
            "logs_cut",
            f"of pods beyond the first {WHOLE}, only the last {first.lines} lines were requested",
            "earlier lines",
        ),
        "lost": ("logs_lost", "the node no longer has this log", "how the run before the restart ended"),
        "undated": ("logs_undated", "lines without a timestamp were left out", "what these lines said"),
    }[word]
    return Gap(
        code, source, f"{len(heap.logs)} of {of} logs: {reason}", scope=scope, asked=asked, got=got, rules_out=out
    )


def _names(names: Iterable[str]) -> str:
    listed = list(dict.fromkeys(names))
    return ", ".join(listed[:5]) + (f" and {len(listed) - 5} more" if len(listed) > 5 else "")
