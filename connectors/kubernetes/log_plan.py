"""Plans which logs of a job's pods to fetch, and how much of each: whole logs of suspicious pods first, and the ends of the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from connectors.base.contract import CollectionRequest, safe_name
from connectors.kubernetes.api import is_name, is_namespace
from kb.parsers.schedulers.pods import Pod, Ranks

WHOLE = 64  # pods
MOST_BYTES = 4 << 20  # of a container
MOST_LINES = 5000
END_LINES = 200  # of pods that are not fetched whole, and of truncated responses
END_BYTES = 256 << 10
LEAST_BYTES = 4 << 10


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
