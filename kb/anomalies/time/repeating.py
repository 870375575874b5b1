"""Takes a run's steps from the structure that repeats, where none of its lines is a step line that the readers know.

A line that nearly all nodes print again and again, with a number that rises by the same amount from one to the next, counts steps,
whatever its words. Of several such lines the one printed most often is taken, and of each log the last one that is kept: the pace
between them is not known. Lines of a loss that name no step, as some trainers print, are placed between them.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from kb.anomalies.core.run import JOB, RANK, LineRef, RunEvent, RunProfile, StepLine
from kb.anomalies.core.severity_words import harm, is_body, is_consequence, is_mild, is_uneasy
from kb.anomalies.core.stamps import STAMPS
from kb.anomalies.nodes.peers import number_ends, numbers_in
from kb.anomalies.time.shared_counts import shared_count
from kb.parsers.logs.progress import words
from kb.parsers.logs.progress.repeated_lines import counted

FEWEST = 5  # lines of a node
FEW = 3  # lines of each of `SEVERAL` nodes or more, which count the same
SEVERAL = 3
FEWEST_ALONE = 8  # lines of the one node that counts for all
MOST_SPARSE = 3  # lines a node up to which those of all together may show more
MOST_NODES = 0.7  # share of the nodes that print the line
OFTEN = 0.3  # times as many lines as the event with the most on a node has, at least
TROUBLE = 0.3  # harm from which on a single node's line counts attempts rather than steps
ALIKE = 1.25  # times as fast as another count, at most, to count the same
EDGE = 6  # last lines of a node that follow each other
ROUND = 5  # a count by multiples of this, as of every tenth step, is of steps; one by 1 behind it counts these lines
HIGHEST = 10_000_000  # greater numbers are times, sizes and identities
_LOSS = re.compile(rf"(?i)(?<![^\W_])(?:loss|{words.LOSS})(?![^\W_])")
_UNIT = re.compile(r" ?(?:s|ms|us|sec|secs|seconds|min|minutes|h|[KMGT]i?B|[kMG]|bytes|B|%|fps)\b(?!/)|%")
_TOTAL = re.compile(r" ?(?:/|of|out of) ?(\d+)\b")
_Rows = tuple[tuple[StepLine, ...], ...]


@dataclass(frozen=True, slots=True)
class RepeatingSteps:
    """Step lines by structure. `pace`: seconds between two of them on one rank; None if their times do not show it.

    `counted`: all lines of that form that are kept.
    """

    beats: tuple[StepLine, ...] = ()
    pace: float | None = None
    counted: tuple[StepLine, ...] = ()


@dataclass(frozen=True, slots=True)
class _Count:
    """A number that an event counts. `often`: lines of a node; `speed`: by how much it rises in a second, or in a byte; `total`: it has an end.

    `loss`: its lines state a loss.
    """

    rows: _Rows
    often: int
    count: int
    speed: float
    total: bool
    loss: bool = False


def repeating_steps(run: RunProfile) -> RepeatingSteps:
    """Steps by the last lines that are kept of the event that counts them, in order; none if no event does.

    Of several counts, those that tell their end count first, then those beside a loss, then the slowest: a pulse or a number of samples
    rises faster than the steps.
    Lines of a loss that name no step get the step that was under way, as those of their source that count show it.
    """
    nodes = [node for node, kind in run.kinds.items() if node in run.heard and kind != "log"]
    wanted = max(1, MOST_NODES * len(nodes))
    timed = any(voice.last is not None and voice.last.time is not None for voice in run.voices)
    found: list[_Count] = []
    for event in sorted(run.events.values(), key=lambda item: item.id):
        alone = len(event.nodes) == 1 < wanted and event.count >= FEWEST_ALONE
        if (
            (len(event.nodes) >= wanted or alone)
            and not _is_of_trouble(event, alone=alone)
            and not _of_members(event, run)
        ):
            found += _counts_of(event, timed=timed)
    best = _step_count(found) or _of_few_lines(run)
    shared = shared_count(run) if best is None or best.often < FEWEST or best.count < MOST_SPARSE * len(nodes) else None
    if shared is not None and (best is None or len(shared.beats) >= best.count):
        return RepeatingSteps(shared.beats, shared.pace, shared.beats)
    if best is None:
        return RepeatingSteps()
    losses = _with_steps(run.losses, best.rows)
    kept = tuple(beat for row in best.rows for beat in row)
    return RepeatingSteps(losses or tuple(row[-1] for row in best.rows), None if losses else _pace(best.rows), kept)


def _of_few_lines(run: RunProfile) -> _Count | None:
    """The count of a line that few ranks print, or few times, but that can hardly count anything else."""
    found = []
    for event in run.events.values():
        spots = {(spot.source, spot.offset): spot for seen in event.nodes.values() for spot in seen.spots}
        ordered = sorted(spots.values(), key=lambda spot: (spot.time or 0.0, spot.source, spot.offset))
        steps = None if _is_of_trouble(event, alone=True) else counted([spot.text for spot in ordered])
        if steps is not None:
            beats = (StepLine(spot, step) for spot, step in zip(ordered, steps, strict=True))
            row = tuple(sorted(beats, key=lambda beat: beat.step))
            found.append(_Count((row,), len(row), event.count, math.inf, total=False))
    return max(found, key=lambda item: item.count, default=None)


def _of_members(event: RunEvent, run: RunProfile) -> bool:
    """Whether it is a line for each member of the job, in one log: their numbers rise, too."""
    return len(event.nodes) == 1 and str(event.count) == run.settings.get("world_size")


def _is_of_trouble(event: RunEvent, *, alone: bool) -> bool:
    if is_body(event.text) or is_consequence(event.text):
        return True
    return alone and (harm(event.text, event.level) >= TROUBLE or is_uneasy(event.text) or is_mild(event.text))


def _step_count(found: Sequence[_Count]) -> _Count | None:
    """The count that is most likely that of the steps."""
    most = max((item.often for item in found), default=0)
    usual = [item for item in found if item.often >= OFTEN * most]
    usual = [item for item in usual if item.total] or usual
    slowest = min((item.speed for item in [one for one in usual if one.loss] or usual), default=0.0)
    alike = [item for item in usual if slowest / ALIKE <= item.speed <= ALIKE * slowest]
    return max(alike, key=lambda item: item.count, default=None)


def _counts_of(event: RunEvent, *, timed: bool) -> Iterator[_Count]:
    """Yield the numbers that an event counts in each log, if it counts in all of them."""
    kept: dict[tuple[str, str], dict[int, LineRef]] = defaultdict(dict)
    least = FEW if len(event.nodes) >= SEVERAL else FEWEST
    for node, seen in event.nodes.items():
        if node != JOB and seen.count >= least:
            for spot in seen.spots:  # of one source, several ranks that share it count each for itself
                kept[spot.source, node if node.startswith(RANK) else ""][spot.offset] = spot
    longest: dict[str, int] = defaultdict(int)  # of a node's files, the newest of those that rotate may just have begun
    for (_, node), spots in kept.items():
        longest[node] = max(longest[node], len(spots))
    rows = [
        [(spots[at], numbers_in(spots[at].text)) for at in sorted(spots)]
        for (_, node), spots in kept.items()
        if len(spots) > 1 or not node or longest[node] == 1
    ]
    if not rows or min(map(len, rows)) < 2:
        return
    often = max(seen.count for seen in event.nodes.values())
    width = min(len(numbers) for lines in rows for _, numbers in lines)
    interval = False
    for place in range(width):
        columns = [[numbers[place] for _, numbers in lines] for lines in rows]
        if all(_counts(column) for column in columns) and _same_stride(columns) and _in_common(columns):
            stride = _stride(columns)
            steps = tuple(tuple(StepLine(spot, int(numbers[place])) for spot, numbers in lines) for lines in rows)
            total, measure = _is_of(steps, place)
            if not measure and not (interval and stride == 1):
                yield _Count(
                    steps, often, event.count, _speed(steps, timed=timed), total, _LOSS.search(event.text) is not None
                )
            interval = interval or (not measure and stride % ROUND == 0)


def _is_of(rows: _Rows, place: int) -> tuple[bool, bool]:
    """Whether the number at a place of all lines is one of a total that none exceeds, and whether it has a unit."""
    behind = [
        (beat.step, STAMPS.sub(" ", beat.spot.text)[end:])
        for row in rows
        for beat in row
        for end in number_ends(beat.spot.text)[place : place + 1]
    ]
    totals = {(int(match[1]), step <= int(match[1])) for step, rest in behind if (match := _TOTAL.match(rest))}
    total = len(totals) == 1 and all(_TOTAL.match(rest) for _, rest in behind) and next(iter(totals))[1]
    return bool(total), all(_UNIT.match(rest) for _, rest in behind)


def _speed(rows: _Rows, *, timed: bool) -> float:
    """By how much the longest row rises in a second, in a byte where the run has no times; infinite if that is not known."""
    row = max(rows, key=len)
    first, last = row[0], row[-1]
    timed = timed and first.spot.time is not None
    length = (last.spot.time or 0.0) - (first.spot.time or 0.0) if timed else last.spot.offset - first.spot.offset
    return (last.step - first.step) / length if length > 0 else math.inf


def _pace(rows: _Rows) -> float | None:
    """The usual seconds between the last lines of a row; those kept of a beginning are elsewhere."""
    times = [[beat.spot.time for beat in row[-EDGE:] if beat.spot.time is not None and beat.spot.dated] for row in rows]
    gaps = [after - before for row in times for before, after in pairwise(row) if after >= before]
    return (median(gaps) or sum(gaps) / len(gaps) or None) if gaps else None


def _with_steps(losses: Sequence[StepLine], rows: _Rows) -> tuple[StepLine, ...]:
    """Lines of a loss with the step under way, by the places of those that count in the same source."""
    counted = {row[0].spot.source: row for row in rows}
    found = []
    for line in losses:
        row = counted.get(line.spot.source, ())
        behind = bisect_right(row, line.spot.offset, key=lambda item: item.spot.offset)
        if 0 < behind < len(row):
            last, after = row[behind - 1], row[behind]
            share = (line.spot.offset - last.spot.offset) / (after.spot.offset - last.spot.offset)
            found.append(replace(line, step=last.step + int(share * (after.step - last.step))))
        elif row:
            found.append(replace(line, step=row[-1 if behind else 0].step))
    return tuple(found)


def _counts(column: Sequence[float]) -> bool:
    """Whether numbers are whole and rise; ranks that share a log may write the same one each."""
    if not all(value == int(value) and 0 <= value < HIGHEST for value in column):
        return False
    rises = all(after >= before for before, after in pairwise(column))
    return (
        rises and column[0] < column[-1] and len({*column}) * 2 >= len(column)
    )  # not an epoch in the line of each step


def _in_common(columns: Sequence[Sequence[float]]) -> bool:
    """Whether the nodes count the same: a number of each node's own is no step."""
    every = {value for column in columns for value in column}
    return len(every) <= 2 * max(map(len, columns))


def _stride(columns: Sequence[Sequence[float]]) -> float:
    """The least amount by which numbers rise from a line to the next that is kept."""
    return min(after - before for column in columns for before, after in pairwise(column) if after > before)


def _same_stride(columns: Sequence[Sequence[float]]) -> bool:
    """Whether all numbers follow each other by multiples of one amount; lines in between may not have been kept."""
    strides = {after - before for column in columns for before, after in pairwise(column) if after > before}
    least = min(strides)
    return all(stride % least == 0 for stride in strides) and all(
        column[0] % least == columns[0][0] % least for column in columns
    )
