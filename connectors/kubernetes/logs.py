"""Fetches the logs of a job's pods in parallel, as planned.

The server counts lines from the end and bytes from there on, so a truncated response lacks the newest lines, which matter
most. They are requested separately, fewer at a time if they are long. The log before the last restart precedes the
current one. A node that the server cannot reach is not asked again for its other pods.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import UTC, datetime

from connectors.base.contract import CollectionRequest, Deadline, SourceFailed, Spool
from connectors.base.http_response import HttpResponse
from connectors.kubernetes.api import KubernetesApi
from connectors.kubernetes.gaps import listing
from connectors.kubernetes.log_plan import END_BYTES, END_LINES, WHOLE, LogRequest
from kb.model import Gap, Resource

SIDE_BY_SIDE = 16
FEWER = (4, 1)  # concurrent requests after the server refused more
LONGEST_LINE = 4 << 20  # bytes of the newest line, if it alone exceeds END_BYTES
POD_SECONDS = 20.0
NOT_READY_SECONDS = 6.0  # for a pod of a node that is not ready: the server tries to reach it for half a minute
ROTATED = 600.0  # seconds after a container's start, at which a log that begins there lacks its first lines
_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)(?: |\Z)")
PART = 16 << 10  # bytes: container runtimes write longer lines in parts, and tailLines counts these
_LONGEST_STAMP = 36  # bytes, with the space behind it
_UNREACHABLE = re.compile(
    r"dial tcp|no route to host|i/o timeout|TLS handshake timeout|connection refused|error dialing"
)
_NO_LOG = (
    b"unable to retrieve container logs for ",
    b"failed to try resolving symlinks in path ",
    b"failed to open log file ",
)


@dataclass(slots=True)
class LogOutcome:
    """The result of one log: lines written, and what was truncated or failed."""

    lines: int = 0
    cut: bool = False
    ended: bool = False  # only the end was requested, and there was more
    rotated: bool = False  # it begins long after the start of its container
    lost: bool = False  # the node no longer has it
    failed: SourceFailed | None = None
    undated: int = 0


@dataclass(slots=True)
class _Nodes:
    """What is known about the nodes while logs are fetched: those not ready, those that responded, those that cannot be reached."""

    not_ready: frozenset[str]
    responded: set[str] = field(default_factory=set)
    unreachable: dict[str, SourceFailed] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def seconds(self, node: str | None) -> float:
        """Return how long to wait for a log.

        Raises:
            SourceFailed: The node could not be reached for another pod.
        """
        with self.lock:
            known = self.unreachable.get(node or "")
        if known is not None:
            raise known
        return NOT_READY_SECONDS if node in self.not_ready else POD_SECONDS

    def failed(self, node: str | None, failed: SourceFailed) -> SourceFailed:
        """Return the failure to report, and remember the node if it was the reason."""
        with self.lock:
            known = self.unreachable.get(node or "")
            silent = failed.kind == "timeout" and node not in self.responded
            refused = failed.kind in {"server_error", "timeout"} and _UNREACHABLE.search(str(failed))
            if known is not None or not node or not (silent or refused):
                return known or failed
            message = f"the API server cannot reach the kubelet of {node}, which has the log: {failed}"
            worded = SourceFailed(failed.kind, message, asked=failed.asked)
            return self.unreachable.setdefault(node, worded)

    def well(self, node: str | None) -> None:
        """Remember that a node responded."""
        with self.lock:
            self.responded.add(node or "")


def fetch_logs(
    api: KubernetesApi,
    wanted: Sequence[LogRequest],
    request: CollectionRequest,
    spool: Spool,
    source: str,
    *,
    not_ready: frozenset[str] = frozenset(),
) -> Iterator[Gap]:
    """Fetch the logs and write them. Yield one gap for each reason why something is missing. `not_ready`: nodes."""
    nodes = _Nodes(not_ready)
    outcomes = [LogOutcome()] * len(wanted)
    again = list(range(len(wanted)))
    calls = api.client.endpoint.load.calls  # more requests at a time would only wait for each other
    for parallel in (min(SIDE_BY_SIDE, calls), *FEWER):
        for at, outcome in _by_node(
            [wanted[at] for at in again], parallel, lambda item: _fetch_log(api, item, request, spool, nodes)
        ):
            outcomes[again[at]] = outcome
        again = [at for at in again if (failed := outcomes[at].failed) is not None and failed.kind == "rate_limited"]
        if not again or request.deadline.left() <= 0:
            break
    yield from _gaps(wanted, outcomes, source)


def _by_node(
    wanted: Sequence[LogRequest], parallel: int, fetch: Callable[[LogRequest], LogOutcome]
) -> Iterator[tuple[int, LogOutcome]]:
    """Fetch logs in parallel, and yield each with its place. A node's first log comes before its others.

    So a node that does not respond holds up one request, not all.
    """
    queues: dict[str, list[int]] = {}
    for at, item in enumerate(wanted):
        queues.setdefault(item.pod.node or f"no node: {item.pod.uid}", []).append(at)
    with ThreadPoolExecutor(parallel) as pool:
        running = {pool.submit(fetch, wanted[queue[0]]): (queue[0], queue[1:]) for queue in queues.values()}
        while running:
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                at, others = running.pop(future)
                yield at, future.result()
                running |= {pool.submit(fetch, wanted[other]): (other, []) for other in others}


def _fetch_log(
    api: KubernetesApi, wanted: LogRequest, request: CollectionRequest, spool: Spool, nodes: _Nodes
) -> LogOutcome:
    out = LogOutcome()
    try:
        lines = _runs(api, wanted, request, out, request.deadline.sooner(nodes.seconds(wanted.pod.node)))
        if lines:
            lines.sort(key=lambda line: line[:30])
            spool.append(wanted.path, b"".join(line + b"\n" for line in lines))
            who = Resource(node=wanted.pod.node, rank=wanted.rank, container=wanted.pod.name)
            spool.describe(wanted.path, resource=who, query=f"log of {wanted.pod.name}, container {wanted.container}")
        out.lines = len(lines)
        nodes.well(wanted.pod.node)
    except SourceFailed as failed:
        out.failed = nodes.failed(wanted.pod.node, failed)
    return out


def _runs(
    api: KubernetesApi, wanted: LogRequest, request: CollectionRequest, out: LogOutcome, deadline: Deadline
) -> list[bytes]:
    """Return the lines before and after the last restart; either may be missing."""
    found: list[bytes] = []
    for previous in (True, False) if wanted.previous else (False,):
        try:
            found += _log(api, wanted, request, out, deadline, previous=previous)
        except SourceFailed as failed:
            # "previous terminated container … not found", "container … is waiting to start": there is no log
            if failed.kind != "refused":
                raise
            out.lost = out.lost or (previous and bool(wanted.pod.restarts))
    return found


def _log(
    api: KubernetesApi,
    wanted: LogRequest,
    request: CollectionRequest,
    out: LogOutcome,
    deadline: Deadline,
    *,
    previous: bool,
) -> list[bytes]:
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
        count = min(END_LINES, wanted.lines or END_LINES)
        newest = _newest(lambda params, most: api.log(namespace, pod, params, most, deadline), params, count)
        lines += [line for line in _stamped(newest, request, out) if line not in held]
    elif wanted.lines is not None and _parts_of(answer.body) >= wanted.lines:
        out.ended = True
    elif lines and wanted.whole and not previous:
        out.rotated = _begins_late(lines[0], wanted, request)
    return lines


_Params = Mapping[str, str | int | None]


def _newest(ask: Callable[[_Params, int], HttpResponse], params: _Params, count: int) -> bytes:
    """Return the last lines that fit, `count` at most: ever fewer are requested until the response is not cut."""
    while True:
        most = END_BYTES if count > 1 else LONGEST_LINE
        tail = ask({**params, "tailLines": count}, most)
        if count == 1 or not (tail.cut or len(tail.body) >= most):
            return tail.body
        count = max(1, count // 14)


def _parts_of(body: bytes) -> int:
    """Return how many lines a response has as the kubelet counts them: a long one in parts."""
    lines = body.split(b"\n")[:-1]
    return sum(1 if len(line) <= PART else max(1, (len(line) - _LONGEST_STAMP) // PART + 1) for line in lines)


def _begins_late(first: bytes, wanted: LogRequest, request: CollectionRequest) -> bool:
    """Return whether the first line is so long after the container's start that earlier ones were rotated away."""
    started = wanted.pod.lives[-1].started if wanted.pod.lives and wanted.container == wanted.pod.container else None
    if started is None or (request.window.start is not None and request.window.start > started):
        return False
    return first[:30] > _iso(started + ROTATED).encode()


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
            text = line[stamp.end() :] if len(line) <= PART else _joined(line[stamp.end() :])
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


def _joined(text: bytes) -> bytes:
    """Return a long line without the timestamps that kubelets before 1.27 write before each of its parts."""
    at = PART
    while at < len(text) and (stamp := _STAMP.match(text, at, at + _LONGEST_STAMP)) is not None:
        text = text[:at] + text[stamp.end() :]
        at += PART
    return text


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
            ("rotated", out.rotated),
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
    scope = listing(log.pod.name for log in heap.logs)
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
        "rotated": (
            "logs_rotated",
            f"begins more than {ROTATED / 60:.0f} minutes after the container started: earlier lines were rotated away",
            "what was logged before",
        ),
        "lost": ("logs_lost", "the node no longer has this log", "how the run before the restart ended"),
        "undated": ("logs_undated", "lines without a timestamp were left out", "what these lines said"),
    }[word]
    return Gap(
        code, source, f"{len(heap.logs)} of {of} logs: {reason}", scope=scope, asked=asked, got=got, rules_out=out
    )
