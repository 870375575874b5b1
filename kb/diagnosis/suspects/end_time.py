"""When a fault was first seen: by its own lines, else by a launcher or scheduler that says when a process or a job ended."""

from __future__ import annotations

from collections.abc import Iterator

from kb.diagnosis.causal_order import STOPS
from kb.diagnosis.findings import Finding
from kb.diagnosis.suspects.launcher import ends_like
from kb.facts.job_facts import LAUNCHER_KINDS, Facts
from kb.parsers.logs.timestamps import find_time
from kb.regex.lazy import lazy_compile
from kb.scanning.summary import lines_between
from kb.values import dataclass

_ENDS_AT_ONCE = frozenset({"exception", "native_crash", "elastic_failure"})  # kinds of structures
_OF_REPORT = lazy_compile(r"Terminated at (?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) ")  # in the report of LSF
_REPORT = 8192  # bytes from there to the reason, between which the job's script is shown


@dataclass(frozen=True, slots=True)
class FirstSeen:
    """When a fault was first seen, in seconds since 1970; None if unknown.

    `own`: by its own lines; otherwise, by a line before them, so no earlier. `reported`: when a launcher noticed it, so no later.
    """

    time: float | None = None
    own: bool = True
    reported: bool = False


def first_seen(best: Finding, facts: Facts) -> FirstSeen:
    """Return when a fault was first seen."""
    seen = [s for s in best.signals if s.timed or s.kind not in LAUNCHER_KINDS]  # launchers notice an end after it
    times = [(s.time, not s.timed) for s in seen if s.time is not None]
    first, borrowed = min(times, default=(None, False))
    if first is not None and not (borrowed and len(times) < len(best.signals)):  # those without any time may be older
        return FirstSeen(first, own=not borrowed)
    ended = _end_time(best, facts)
    if ended is not None:
        return FirstSeen(ended, reported=best.fault.id not in STOPS)
    return FirstSeen(own=not borrowed)


def _end_time(best: Finding, facts: Facts) -> float | None:
    """Return when a launcher or scheduler says that what a finding is about happened; None if none says it."""
    if best.first.stream < 0 or best.fault.outlives:
        return None
    told = [*_failed(best, facts), *_stopped(best, facts)]
    return min(told, default=None)


def _failed(best: Finding, facts: Facts) -> Iterator[float]:
    """Yield when a launcher saw processes fail that can have failed of a finding.

    Only of what ends a process at once, and of the attempt in which its first line is: a launcher that starts the job again
    reports each attempt.
    """
    first = best.first
    begun, end = facts.streams[first.stream].attempt(first.offset)
    for index, item in facts.structures("elastic_failure") if first.kind in _ENDS_AT_ONCE else ():
        within = index == first.stream and begun <= item.offset and (end is None or item.offset < end)
        if within and ends_like(item, best) and (not best.ranks or item.resource.rank in best.ranks):
            time = find_time(str(item.fields.get("time") or "").encode())
            if time is not None:
                yield time


def _stopped(best: Finding, facts: Facts) -> Iterator[float]:
    """Yield when LSF ended the job, from the report that gives the reason."""
    first = best.first
    if best.fault.id not in STOPS or first.kind != "line":
        return
    above = lines_between(facts.streams[first.stream].summary, first.offset - _REPORT + 1, first.offset)
    for line in [line for _, line in above if _OF_REPORT.match(line)][-1:]:  # those before are of earlier jobs
        time = find_time(line.encode("utf-8", "replace"))
        if time is not None:
            yield time
