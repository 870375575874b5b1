"""Exceptions of a log with which their programs lived: caught, of side threads, of helpers, or raised once it was over."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

from kb.facts.log.chained_exceptions import (
    contexts_of,
    raised_at,
    raised_in_message,
    skipped_again,
    structure_start,
    twins_of,
)
from kb.facts.log.common_end import before_a_common_end
from kb.facts.log.run_ends import end_lines, is_stopped_helper
from kb.facts.log.spoken_on import caught_and_logged, caught_as_before
from kb.model import Structure
from kb.parsers.logs.prefixes import peel
from kb.regex.lazy import lazy_compile
from kb.scanning.summary import StreamSummary, tail_lines
from kb.values import dataclass

_EXIT_BARRIER = " in _exit_barrier"
SPEAKS = 3  # lines of workers at the end of a log that show that they work on
_THREAD_START = lazy_compile(r"\S{0,300}threading\.py:\d{1,6} in (?:_bootstrap(?:_inner)?|run)\n")


@dataclass(frozen=True, slots=True)
class LogExceptions:
    """The exceptions of one log, and what shows if a program lived with them.

    `mains`: those whose tracebacks start in a main program. `ends`: the ends that the log reports. `step_offsets`: where its
    training steps were logged. `driver_ended`: where a driver had ended, behind which only the lines of its workers follow.
    `steps_after`: the number of steps after an offset.
    """

    summary: StreamSummary
    exceptions: Sequence[Structure]
    mains: Sequence[Structure]
    ends: Sequence[Structure]
    step_offsets: Sequence[int]
    driver_ended: float
    steps_after: Callable[[int], int]


def spans_lived_with(
    log: LogExceptions,
    in_traceback: Callable[[int], bool],
    in_frames: Callable[[int], bool],
    *,
    succeeded: bool = False,
) -> list[tuple[int, int]]:
    """Return the spans of bytes, from start to before end, of the exceptions with which the program lived.

    `in_frames`: whether a line is above or at an exception; what is below may be of its message, or a usual line that looks like it.
    `succeeded`: whether the scheduler says that the job did.
    """
    found = [item for item in log.exceptions if item.fields.get("lived_with")]
    found += _threads_after_end(log)
    found += _helpers_after_end(log)
    found += _at_exit_barrier(log)
    found += _threads_after_main(log)
    found += _handled_by_workers(log)
    found += [item for item in log.exceptions if item.fields.get("logged") and log.steps_after(item.offset)]
    found += caught_and_logged(log.summary, log.exceptions, in_frames, log.steps_after, succeeded=succeeded)
    found += before_a_common_end(log.summary, log.exceptions)
    found += caught_as_before(log.summary, log.exceptions, found, in_traceback)
    found += skipped_again(log.exceptions, found, log.summary.tail, log.summary.tail_offset)
    found += twins_of(log.exceptions, found)
    found += contexts_of(log.exceptions, found)
    found += raised_in_message(log.exceptions)
    return [(structure_start(item), _message_end(log, item)) for item in found]


def _message_end(log: LogExceptions, item: Structure) -> int:
    """Return where an exception's message ends at the latest: before the next step or what else was recognised.

    Lines without a prefix can be part of a message, and so can the first lines of what follows it.
    """
    point = bisect_right(log.step_offsets, item.offset)
    steps = log.step_offsets[point : point + 1]
    others = [other.offset for other in log.summary.structures if other.offset > item.offset]
    return min([item.end, *steps, *others])


def _threads_after_end(log: LogExceptions) -> list[Structure]:
    """Return the exceptions of side threads after the reported end: they leave the exit status of the process alone."""
    threads = [item for item in log.exceptions if _of_thread(item)]
    if not threads:
        return []
    over = _end_before(log, structure_start(threads[-1]))
    return [item for item in threads if 0 <= over < structure_start(item)]


def _at_exit_barrier(log: LogExceptions) -> list[Structure]:
    """Return the lost connections of torchrun's agent at its exit barrier: its processes had ended, and none had failed.

    https://github.com/pytorch/pytorch/blob/main/torch/distributed/elastic/agent/server/api.py (_exit_barrier)
    """
    lost = [
        item
        for item in log.exceptions
        if _EXIT_BARRIER in str(item.fields.get("frames")) and str(item.fields.get("type")).endswith("DistNetworkError")
    ]
    failed = bool(lost) and any(item.kind == "elastic_failure" for item in log.summary.structures)
    return [] if failed else lost


def _helpers_after_end(log: LogExceptions) -> list[Structure]:
    """Return a shell's reports of stopped processes after the reported end: its script stops the helpers that it started."""
    reports = [item for item in log.summary.structures if item.kind == "launcher_exit"]
    stopped = [item for item in reports if item.fields.get("launcher") == "shell" and is_stopped_helper(item)]
    return [item for item in stopped if _end_before(log, item.offset) >= 0]


def _end_before(log: LogExceptions, offset: int) -> int:
    """Return where the log last reported a normal end before an offset; -1 if it did not."""
    lines = [(at, line) for at, line in tail_lines(log.summary) if line.strip() and at < offset]
    told = [end.offset for end in end_lines(lines) if end.how == "completed"]
    known = [end.offset for end in log.ends if end.fields.get("how") == "completed" and end.offset < offset]
    return max([*told, *known], default=-1)


def _threads_after_main(log: LogExceptions) -> list[Structure]:
    """Return the exceptions of side threads after the main thread of their process ended with one of its own.

    The process is the same if both name the same rank, or if neither does and no other main thread raised anything.
    """
    mains = [item for item in log.mains if not item.fields.get("lived_with") and not log.steps_after(item.offset)]
    own = log.summary.ref.resource.rank
    after = []
    for item in log.exceptions if mains else ():
        rank = item.resource.rank
        before = [main for main in mains if main.end <= structure_start(item) and main.resource.rank == rank]
        alone = rank is not None or own is not None or len(mains) == 1
        if before and alone and _of_thread(item):
            after.append(item)
    return after


def _of_thread(item: Structure) -> bool:
    return _THREAD_START.match(str(item.fields.get("frames") or "")) is not None


def _handled_by_workers(log: LogExceptions) -> list[Structure]:
    """Return the exceptions of worker processes before a later training step, if workers still print at the end.

    An exception that a worker does not handle ends its task, and with it the driver's next step. What was handled before
    the last step is handled after it, too.
    """
    own = [item for item in log.exceptions if item.resource.pid is not None]
    raised = [item for item in own if structure_start(item) < log.driver_ended]
    if not raised or not log.step_offsets:
        return []
    last = log.step_offsets[-1]
    spoken = [line for at, line in tail_lines(log.summary) if at > last and line.strip()]
    working = sum(peel(line.encode("utf-8", "replace")).pid is not None for line in spoken) >= SPEAKS
    routine = {raised_at(item) for item in raised if item.offset < last} if working else set()
    return [item for item in raised if raised_at(item) in routine]
