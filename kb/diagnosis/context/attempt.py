"""The facts of one attempt, where a log holds several: a launcher started the program again after it failed."""

from __future__ import annotations

from dataclasses import replace

from kb.facts.job_facts import Facts
from kb.facts.signals import Signal
from kb.scanning.summary import StreamSummary


def of_attempt(signal: Signal, facts: Facts) -> Facts:
    """Return the facts without the steps and stages of other attempts than that of a line, in that line's log.

    Checkpoints of earlier attempts stay: they can be resumed from.
    """
    if signal.stream < 0 or not facts.streams[signal.stream].later_starts:
        return facts
    begun, next_start = facts.streams[signal.stream].attempt(signal.offset)
    streams = list(facts.evidence.streams)
    stop = streams[signal.stream].size if next_start is None else next_start
    streams[signal.stream] = _cut(streams[signal.stream], begun, stop)
    return Facts(replace(facts.evidence, streams=tuple(streams)))


def _cut(summary: StreamSummary, begun: int, stop: int) -> StreamSummary:
    points = tuple(point for point in summary.series.points if begun <= point.offset < stop)
    kept = summary.tail.encode("utf-8", "replace")[: max(0, stop - summary.tail_offset)]
    return replace(
        summary,
        size=stop,
        series=replace(
            summary.series, points=points, first=next(iter(points), None), last=points[-1] if points else None
        ),
        marks=tuple(mark for mark in summary.marks if begun <= mark.offset < stop),
        structures=tuple(item for item in summary.structures if item.offset < stop),
        tail=kept.decode("utf-8", "replace"),
    )


def goes_on(signal: Signal, facts: Facts) -> str:
    """Return, in words, that the log of a line holds a later start; empty if it does not."""
    later = signal.stream >= 0 and facts.streams[signal.stream].attempt(signal.offset)[1] is not None
    return "the same log goes on with a later start of the program" if later else ""


def starts_after(signal: Signal, facts: Facts) -> bool:
    """Whether the log of a line shows a start of the program, and only after that line."""
    marks = facts.streams[signal.stream].summary.marks if signal.stream >= 0 else ()
    return bool(marks) and all(mark.offset > signal.offset for mark in marks)
