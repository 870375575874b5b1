"""The exception that a line refers to but does not quote, such as that of a reader or worker if the line only reports its end."""

from __future__ import annotations

from collections.abc import Mapping

from kb.diagnosis.context.own_frame import innermost
from kb.facts.job_facts import Facts
from kb.facts.log.chained_exceptions import structure_start
from kb.facts.patterns.signals import Signal
from kb.model import Structure

_SHORT = 160  # characters of an exception in a sentence
_NEAR = 16384  # bytes of log in which the writer of the line follows it


def raised_before(signal: Signal, facts: Facts) -> Structure | None:
    """Return the last exception of the same writer that ended shortly before a line, and before the traceback with the line.

    None if the run continued after it: then it is not what the line speaks of.
    """
    stream = facts.streams[signal.stream]
    around = [structure_start(item) for item in stream.exceptions if structure_start(item) <= signal.offset < item.end]
    begin = min(around, default=signal.offset)
    before = [
        item
        for item in stream.exceptions
        if item.end <= begin
        and begin - item.end < _NEAR
        and item.resource.rank == signal.resource.rank
        and not item.line.rstrip().endswith(":")  # without a message: the reader's end, passed on with native stacks
        and not stream.steps_after(item.offset)
    ]
    return before[-1] if before else None


def of_raised(raised: Structure) -> Mapping[str, str]:
    """Return the words for such an exception: its message, and where the run's own code raised it."""
    return {"raised_before": raised.line.strip()[:_SHORT], "raised_in": innermost(raised)}
