"""Reads the steps of a run from the scanner's summaries: which line names which step, and who wrote it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from kb.anomalies.core.run import RANK, LineRef, StepLine
from kb.model import OWN, RESIZED, ProgressPoint, StreamRef
from kb.scanning.summary import StreamSummary

MOST_BEATS = 200_000  # of a run
FEWEST_BEATS = 24  # of a source
MOST_ANCHORS = 16  # of a stream


def beats(summaries: Iterable[StreamSummary], shared: Collection[str]) -> tuple[StepLine, ...]:
    """The step lines: of too many those of the source that shows the job's course, and the first and last few of each other one."""
    jobs = [summary for summary in summaries if summary.ref.kind == "job"]
    points = {
        summary.ref.uri: over_epochs([item for item in summary.series.points if _is_step(item)]) for summary in jobs
    }
    few = sum(map(len, points.values())) <= MOST_BEATS
    each = max(FEWEST_BEATS, MOST_BEATS // max(1, len(points)))
    best = None if few else max(points, key=lambda uri: _course(points[uri]))
    found = []
    for summary in jobs:
        own = points[summary.ref.uri]
        if not few and summary.ref.uri != best and len(own) > each:
            own = [*own[: each // 4], *own[-(each - each // 4) :]]
        found += [_step_line(summary.ref, point, shared) for point in own]
    return tuple(found)


def over_epochs(points: Sequence[ProgressPoint]) -> list[ProgressPoint]:
    """The points with steps of the whole run, where a bar counts those of each epoch from zero and names the epoch."""
    found = list(points)
    own = [point for point in points if not point.validation]
    totals = {point.total for point in own}
    if len(totals) != 1 or not all(map(_is_in_epoch, own)):
        return found
    epochs = [int(point.epoch or 0) for point in own]
    each = next(iter(totals)) or 0
    again = [
        (before, after)
        for before, after in pairwise(own)
        if (after.step or 0) < (before.step or 0) and after.epoch != before.epoch
    ]
    first = epochs[0]
    rises = all(after >= before for before, after in pairwise(epochs)) and first in (0, 1) and len(set(epochs)) > 1
    if not rises or len(again) != len(set(epochs)) - 1 or any((point.step or 0) > each for point in own):
        return found
    return [
        point if point.validation else replace(point, step=(point.step or 0) + (int(point.epoch or 0) - first) * each)
        for point in found
    ]


def _is_in_epoch(point: ProgressPoint) -> bool:
    return point.epoch is not None and point.epoch.is_integer() and point.step is not None and bool(point.total)


def losses(summaries: Iterable[StreamSummary], shared: Collection[str]) -> tuple[StepLine, ...]:
    """The lines of a loss that name no step."""
    found = [
        StepLine(line_of(summary.ref, point, shared), 0, point.seconds, point.loss)
        for summary in summaries
        if summary.ref.kind == "job"
        for point in summary.series.points
        if point.step is None and point.loss is not None and not point.validation
    ]
    return tuple(found[:MOST_BEATS])


def anchors(summaries: Iterable[StreamSummary], shared: Collection[str]) -> tuple[StepLine, ...]:
    """The last steps that ranks report on their own."""
    return tuple(
        StepLine(
            line_of(summary.ref, point, shared),
            point.step,
        )
        for summary in summaries
        if summary.ref.kind == "job"
        for point in [item for item in summary.series.points if item.format == OWN][-MOST_ANCHORS:]
        if point.step is not None
    )


def node_of(ref: StreamRef, named: str | None) -> str:
    """Which node a stream's line belongs to: the stream's node, the one that the line names, its rank's, else the stream itself."""
    who = ref.resource
    if who.node or named:
        return who.node or named or ""
    return rank_unit(who.rank) if who.rank is not None else ref.uri


def rank_unit(rank: int) -> str:
    """The name of a rank in comparisons between ranks."""
    return f"{RANK}{rank}"


def speaker(ref: StreamRef, rank: int | None, shared: Collection[str]) -> str:
    """The unit that printed the step line."""
    if ref.uri in shared:
        return ref.uri if rank is None else rank_unit(rank)
    return node_of(ref, None)


def line_of(ref: StreamRef, point: ProgressPoint, shared: Collection[str]) -> LineRef:
    """The line of a step, with its speaker."""
    return LineRef(ref.uri, point.offset, "", None, point.time, speaker(ref, point.rank, shared), point.rank)


def _is_step(point: ProgressPoint) -> bool:
    return point.step is not None and point.format not in (OWN, RESIZED)


def _course(points: Sequence[ProgressPoint]) -> tuple[bool, int, int]:
    """The key of the source whose step lines are those of the job's course, as kb.anomalies.time.change_step chooses it."""
    own = [point for point in points if not point.validation]
    told = any(point.seconds is not None or point.loss is not None for point in own)
    return told, max((point.step or 0 for point in own), default=-1), len(own)


def _step_line(ref: StreamRef, point: ProgressPoint, shared: Collection[str]) -> StepLine:
    return StepLine(
        line_of(ref, point, shared), point.step or 0, point.seconds, point.loss, point.validation, point.throughput
    )
