"""Lines that appear after the end of the step or process that they belong to: steps until Slurm's kill, and lines that a driver forwards late."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

from kb.facts.log.chained_exceptions import structure_start
from kb.facts.log.run_ends import is_forwarded
from kb.model import ProgressPoint, Structure
from kb.regex.lazy import lazy_compile
from kb.scanning.summary import StreamSummary, tail_lines

# seconds between Slurm's message and the SIGKILL (KillWait is 30 s by default, GraceTime of a partition a few minutes)
_KILL_WAIT = 300.0
_NUMBERS = lazy_compile(r"\x1b\[[\d;]{0,8}m|\d[\d.]*")
_CUT = 400  # characters of a line that are read
_SKEW = 2.0  # seconds between the clocks of the node and of the program


def cancelled_at(structures: Iterable[Structure], points: Sequence[ProgressPoint]) -> frozenset[int]:
    """Return the offsets of Slurm's lines that cancel the job, if the steps end within the time that it leaves a job.

    Steps that continue for longer are those of another attempt or job. Without times, steps that take no longer than that
    and continue from the last one before the line.
    """
    found = []
    for item in structures:
        if item.kind != "slurm_end" or str(item.fields.get("what")).upper() != "JOB":
            continue
        later = [point for point in points if point.offset > item.offset]
        last = next((point for point in reversed(points) if point.offset <= item.offset), None)
        if _ends_in_time(item.time, later) or _goes_on_briefly(last, later):
            found.append(item.offset)
    return frozenset(found)


def _ends_in_time(since: float | None, later: Sequence[ProgressPoint]) -> bool:
    if since is None:
        return False
    times = [point.time for point in later]
    return all(time is not None and -_SKEW <= time - since <= _KILL_WAIT for time in times)


def _goes_on_briefly(last: ProgressPoint | None, later: Sequence[ProgressPoint]) -> bool:
    """Whether steps without a time count on from the last one, each once more, and last as long as a kill may take."""
    run = [] if last is None else [last, *later]
    if any(p.time is not None or p.step is None or p.total != run[0].total or p.validation for p in run):
        return False
    steps, seconds = [p.step or 0 for p in run], [p.seconds for p in run if p.seconds]
    counts_on = all(0 <= after - before <= 1 for before, after in pairwise(steps))
    return counts_on and bool(seconds) and (steps[-1] - steps[0]) * max(seconds) <= _KILL_WAIT


def _starts_in_main(item: Structure) -> bool:
    """Whether the frames of an exception start in a main program."""
    return str(item.fields.get("frames") or "").partition("\n")[0].endswith(" in <module>")


def _form(line: str) -> str:
    """Return a line without its numbers and its colours."""
    return _NUMBERS.sub("#", line[:_CUT]).strip()


def driver_ended(summary: StreamSummary, exceptions: Sequence[Structure]) -> float:
    """Return where a driver's main program failed, if only lines of its workers follow, which arrive late; else infinity.

    The whole end of the log from there on must be at hand.
    """
    mains = [structure_start(item) for item in exceptions if _starts_in_main(item)]
    if not mains or mains[-1] < summary.tail_offset:
        return math.inf
    start, spans = mains[-1], [(structure_start(item), item.end) for item in exceptions]
    later = [(at, line) for at, line in tail_lines(summary) if at >= start and line.strip()]
    if not any(is_forwarded(line) for _, line in later):
        return math.inf
    forwarded = "\n".join(_form(line) for _, line in later if is_forwarded(line))
    # a bar that is drawn over itself is forwarded as one line and kept as several
    own = [at for at, line in later if not is_forwarded(line) and _form(line) not in forwarded]
    apart = [at for at in own if not any(first <= at < end for first, end in spans)]
    return start if not apart else math.inf
