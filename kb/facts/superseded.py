"""Tells whether a later run in the same log came past what ended an earlier one, where no steps show how far each came.

Loggers append to one file. Then a failure of the first run is not that of the last, if the last one shows none and came at
least as far. A log with steps tells this by its steps.
"""

from __future__ import annotations

from bisect import bisect_right

from kb.facts.chained_exceptions import structure_start
from kb.facts.run_ends import is_fatal
from kb.facts.stream_facts import StreamFacts
from kb.scanning.summary import tail_lines

LONG = 8192  # bytes of a run without a failure that are enough, however late an earlier one failed


def passed_later(stream: StreamFacts, offset: int) -> bool:
    """Whether a line is of an earlier run in a log without steps, and the last one printed more without a failure.

    The line may itself be what ended that run, such as an error that a program logged before it left.
    """
    if stream.points or not stream.ends_cleanly_after(-1):  # asked first: to look for starts takes long
        return False
    starts = stream.later_starts or stream.starts_if_failed(offset)
    place = bisect_right(starts, offset)
    if place == len(starts):
        return False
    begun, last = starts[place - 1] if place else 0, starts[-1]
    if any(at >= last for at in stream.failed) or not stream.ends_cleanly_after(last):
        return False
    if any(at >= last and is_fatal(line) for at, line in tail_lines(stream.summary)):
        return False
    own = [structure_start(item) for item in stream.exceptions if structure_start(item) <= offset < item.end]
    reached = min([offset, *own])
    # not every start is known: what failed before was another run
    before = max([begun, *(item.end for item in stream.exceptions if item.end <= reached)])
    return stream.summary.size - last >= min(reached - before, LONG)
