"""The facts of one attempt, where a log holds several: a launcher started the program again after it failed."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from kb.diagnosis.findings import Finding, reduced
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


class RunsInLog(NamedTuple):
    """In which of several runs of a log a finding is: in words, and whether they count the runs up to the log's last."""

    words: str
    to_last: bool


def in_last_run(best: Finding, facts: Facts) -> tuple[Finding, RunsInLog | None]:
    """Return a finding as the last run in its log shows it that has it, and which of several runs that is.

    None if the log holds one run. What compares steps or ranks covers them all.
    """
    first = best.first
    if first.stream < 0 or first.compared or first.kind == "series":
        return best, None
    stream = facts.streams[first.stream]
    starts = stream.later_starts
    if not starts:
        return best, None
    runs = {bisect_right(starts, signal.offset) for signal in best.signals if signal.stream == first.stream}
    last = max(runs)
    begun = starts[last - 1] if last else 0
    own = tuple(item for item in best.signals if item.stream != first.stream or item.offset >= begun)
    return reduced(best, own) or best, _which(runs, len(starts) + 1, whole=_is_kept(stream.summary))


def _which(runs: Collection[int], known: int, *, whole: bool) -> RunsInLog:
    """Return in which runs of a log a finding is; `whole`: whether all of the log is kept, so that no run is missed."""
    if max(runs) + 1 < known:
        return RunsInLog("the same log goes on with a later start of the program", to_last=False)
    several = str(known) if whole else "several"
    if not whole or len(runs) == 1 or min(runs) > 0:
        return RunsInLog(f"in the last of {several} runs in this log", to_last=True)
    if len(runs) == known:
        return RunsInLog(f"in each of the {several} runs in this log", to_last=True)
    return RunsInLog(f"in the first and the last of {several} runs in this log", to_last=True)


def _is_kept(summary: StreamSummary) -> bool:
    return summary.tail_offset <= len(summary.head.encode("utf-8", "replace"))


def precedes_start(signal: Signal, facts: Facts) -> bool:
    """Whether the log of a line shows a start of the program, and only after that line; a launcher's own start tells no stage."""
    marks = facts.streams[signal.stream].summary.marks if signal.stream >= 0 else ()
    before = {mark.stage for mark in marks if mark.offset <= signal.offset} - {"launch"}
    return not before and any(mark.offset > signal.offset and mark.stage != "teardown" for mark in marks)
