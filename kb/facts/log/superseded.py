"""Tells whether a later run in the same log came past what ended an earlier one, where no steps show how far each came.

Loggers append to one file. Then a failure of the first run is not that of the last, if the last one came at least as far,
whatever ended it. A log with steps tells this by its steps.
"""

from __future__ import annotations

from bisect import bisect_right

from kb.facts.log.chained_exceptions import structure_start
from kb.facts.log.run_ends import is_fatal
from kb.facts.log.stream_facts import LAUNCHERS, StreamFacts
from kb.scanning.summary import tail_lines

LONG = 8192  # bytes of a run up to its failure or end that are enough, however late an earlier one failed


def passed_later(stream: StreamFacts, offset: int) -> bool:
    """Whether a line is of an earlier run in a log without steps, and the last one came as far.

    The line may itself be what ended that run, such as an error that a program logged before it left.
    """
    if stream.points:
        return False
    starts = stream.later_starts
    if not starts and not stream.failed and stream.ends_cleanly_after(-1):  # asked first: to look for starts takes long
        starts = stream.starts_if_failed(offset)
    place = bisect_right(starts, offset)
    if place == len(starts):
        return False
    own = [structure_start(item) for item in stream.exceptions if structure_start(item) <= offset < item.end]
    reached = min([offset, *own])
    # not every start is known: what failed before was another run
    begun = max([starts[place - 1] if place else 0, *(item.end for item in stream.exceptions if item.end <= reached)])
    last, wanted = starts[-1], min(reached - begun, LONG)
    failed = min((at for at in stream.failed if at >= last), default=None)
    if failed is not None:
        # what fails after a launcher started its workers again may follow from what failed before
        again = any(item.kind in LAUNCHERS and item.offset < last for item in stream.summary.structures)
        return not again and _where(stream, failed) - last >= wanted
    if not stream.ends_cleanly_after(last) or any(
        at >= last and is_fatal(line) for at, line in tail_lines(stream.summary)
    ):
        return False
    return stream.summary.size - last >= wanted


def _where(stream: StreamFacts, failed: int) -> int:
    """Return where what ended a process begins: the start of its traceback, if it is an exception."""
    return min(
        [failed, *(structure_start(item) for item in stream.exceptions if structure_start(item) <= failed < item.end)]
    )
