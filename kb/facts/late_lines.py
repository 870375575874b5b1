"""Lines that come after the end of what they belong to: steps until Slurm's kill, and what a driver forwards late."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from kb.facts.chained_exceptions import structure_start
from kb.facts.run_ends import is_forwarded
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

    Steps that go on for longer are those of another attempt or job. Empty if a step after the line has no time.
    """
    found = []
    for item in structures:
        if item.kind != "slurm_end" or str(item.fields.get("what")).upper() != "JOB" or item.time is None:
            continue
        later = [point.time for point in points if point.offset > item.offset]
        if all(time is not None and -_SKEW <= time - item.time <= _KILL_WAIT for time in later):
            found.append(item.offset)
    return frozenset(found)


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
