"""The facts of one attempt, where a log holds several: a launcher started the program again after it failed."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from kb.diagnosis.findings import Finding, reduced
from kb.facts.job_facts import Facts
from kb.facts.log.chained_exceptions import structure_start
from kb.facts.patterns.signals import Signal
from kb.model import Structure
from kb.regex.lazy import lazy_compile
from kb.scanning.summary import StreamSummary

_NUMBER = lazy_compile(r"\d+(?:\.\d+)?")
_IDENTIFY = ("type", "message", "op", "signal", "exitcode")  # fields of a structure that say what was reported


def of_attempt(signal: Signal, facts: Facts) -> Facts:
    """Return the facts without the steps and stages of different attempts than that of a line, in that line's log.

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
    runs |= {bisect_right(starts, item.offset) for item in _alike_before(first, begun, facts)}
    own = tuple(item for item in best.signals if item.stream != first.stream or item.offset >= begun)
    return reduced(best, own) or best, _which(runs, len(starts) + 1, whole=_is_kept(stream.summary))


def _alike_before(first: Signal, begun: int, facts: Facts) -> list[Structure]:
    """Return the reports before a run of what a structure of it reports; those that a later run outlived are no signals."""
    own = facts.streams[first.stream].summary.structures
    read = next((item for item in own if item.kind == first.kind and item.offset == first.offset), None)
    if read is None:  # a line, which may be that of an exception
        raised = (item for item in own if item.kind == "exception")
        read = next((item for item in raised if structure_start(item) <= first.offset < item.end), None)
    if read is None:
        return []
    what = _what(read)
    return [item for item in own if item.kind == read.kind and item.offset < begun and _what(item) == what]


def _what(item: Structure) -> list[str]:
    """Return what a structure reports, its message without numbers, such as amounts of memory."""
    told = {name: str(item.fields.get(name) or "") for name in _IDENTIFY}
    return list({**told, "message": _NUMBER.sub("#", told["message"])}.values())


def latest_first(findings: Sequence[Finding], facts: Facts) -> tuple[Finding, ...]:
    """Return the findings of one fault, with the one that the last run of their log shows first, if it is no more generic."""
    best = findings[0]
    last = _last_run(best, facts)
    later = [item for item in findings[1:] if item.rule.fallback <= best.rule.fallback and item.role == best.role]
    later = [item for item in later if item.first.stream == best.first.stream and _last_run(item, facts) > last]
    if last < 0 or not later:
        return tuple(findings)
    lead = max(later, key=lambda item: _last_run(item, facts))
    return (lead, *(item for item in findings if item is not lead))


def _last_run(finding: Finding, facts: Facts) -> int:
    """Return the number of the last run in its first line's log that shows a finding; -1 if it compares, or of one run."""
    first = finding.first
    starts = facts.streams[first.stream].later_starts if first.stream >= 0 else ()
    if not starts or first.compared or first.kind == "series":
        return -1
    return max(bisect_right(starts, signal.offset) for signal in finding.signals if signal.stream == first.stream)


def _which(runs: Collection[int], known: int, *, whole: bool) -> RunsInLog:
    """Return in which runs of a log a finding is; `whole`: whether all of the log is kept, so that no run is missed."""
    if max(runs) + 1 < known:
        return RunsInLog("the same log goes on with a later start of the program", to_last=False)
    if len(runs) == 1:  # their number is not told: a start that prints little is not seen
        return RunsInLog("in the last of several runs in this log", to_last=True)
    if not whole or min(runs) > 0:
        before = "an earlier one" if len(runs) == 2 else "earlier ones"
        return RunsInLog(f"in the last of several runs in this log, and in {before}", to_last=True)
    if len(runs) == known:
        return RunsInLog("in each run that is seen in this log", to_last=True)
    return RunsInLog("in the first and the last of several runs in this log", to_last=True)


def _is_kept(summary: StreamSummary) -> bool:
    return summary.tail_offset <= len(summary.head.encode("utf-8", "replace"))


def precedes_start(signal: Signal, facts: Facts) -> bool:
    """Whether the log of a line shows a start of the program, and only after that line. The start of a launcher does not count."""
    marks = facts.streams[signal.stream].summary.marks if signal.stream >= 0 else ()
    before = {mark.stage for mark in marks if mark.offset <= signal.offset} - {"launch"}
    return not before and any(mark.offset > signal.offset and mark.stage != "teardown" for mark in marks)
