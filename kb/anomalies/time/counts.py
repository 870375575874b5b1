"""Finds numbers that lines count with: those that rise by the same amount from one line of an event to its next."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from kb.anomalies.core.numbers import number_ends, numbers_in
from kb.anomalies.core.run import JOB, RANK, LineRef, RunEvent, StepLine
from kb.anomalies.core.severity_words import skeleton
from kb.anomalies.core.stamps import STAMPS
from kb.parsers.logs.progress import words
from kb.parsers.logs.progress.repeated_lines import states_value

FEWEST = 5  # lines of a node
FEW = 3  # lines of each of `SEVERAL` nodes or more, which count the same
SEVERAL = 3
MOST_SHARING = 16  # speakers of one log that print the same number each
ROUND = 5  # a count by multiples of this, as of every tenth step, is of steps; one by 1 behind it counts these lines
HIGHEST = 10_000_000  # greater numbers are times, sizes and identities
_LOSS = re.compile(rf"(?i)(?<![^\W_])(?:loss|{words.LOSS})(?![^\W_])")
_UNIT = re.compile(r" ?(?:s|ms|us|sec|secs|seconds|min|minutes|h|[KMGT]i?B|[kMG]|bytes|B|%|fps)\b(?![/=:])|%")
_TOTAL = re.compile(r" ?(?:/|of|out of) ?(\d+)\b")
Rows = tuple[tuple[StepLine, ...], ...]


@dataclass(frozen=True, slots=True)
class Count:
    """A number that an event counts. `often`: lines of a node; `speed`: by how much it rises in a second, or in a byte; `total`: it has an end.

    `loss`: its lines state a loss; `value`: they state a number without a unit, as a loss in unknown words is. `form`, `place`: the
    words of the event and which of its numbers it is. `span`: the share of its log over which it rises. `shared`: several speakers
    that are not told apart print each number.
    """

    rows: Rows
    often: int
    count: int
    speed: float
    total: bool
    loss: bool = False
    value: bool = False
    form: tuple[str, ...] = ()
    place: int = 0
    span: float = 1.0
    shared: bool = False


def form_of(event: RunEvent) -> tuple[str, ...]:
    """The words of an event; what it consists of if it has no words, as a row of a table."""
    return skeleton(event.text) or tuple(event.text.split())


def rows_of(event: RunEvent, least: int = 1) -> list[list[tuple[LineRef, list[float]]]]:
    """The lines that are kept of each log, in order, with their numbers; of several ranks that share a log, of each rank."""
    kept: dict[tuple[str, str], dict[int, LineRef]] = defaultdict(dict)
    for node, seen in event.nodes.items():
        if node != JOB and seen.count >= least:
            for spot in seen.spots:  # of one source, several ranks that share it count each for itself
                kept[spot.source, node if node.startswith(RANK) else ""][spot.offset] = spot
    longest: dict[str, int] = defaultdict(int)  # of a node's files, the newest of those that rotate may just have begun
    for (_, node), spots in kept.items():
        longest[node] = max(longest[node], len(spots))
    return [
        [(spots[at], numbers_in(spots[at].text)) for at in sorted(spots)]
        for (_, node), spots in kept.items()
        if len(spots) > 1 or not node or longest[node] == 1
    ]


def counts_of(event: RunEvent, ends: Mapping[str, int], *, timed: bool) -> Iterator[Count]:
    """Yield the numbers that an event counts in each log, if it counts in all of them. `ends`: the last byte of each source."""
    rows = rows_of(event, FEW if len(event.nodes) >= SEVERAL else FEWEST)
    if not rows or min(map(len, rows)) < 2:
        return
    width = min(len(numbers) for lines in rows for _, numbers in lines)
    interval = False
    for place in range(width):
        columns = [[numbers[place] for _, numbers in lines] for lines in rows]
        shared = not all(map(_counts, columns))
        if shared and not all(map(_counts_together, columns)):
            continue
        if _same_stride(columns) and _in_common(columns):
            stride = _stride(columns)
            steps = tuple(tuple(StepLine(spot, int(numbers[place])) for spot, numbers in lines) for lines in rows)
            total, measure = _is_of(steps, place)
            if not measure and not (interval and stride == 1):
                yield count_in(event, steps, place, ends, timed=timed, total=total, shared=shared)
            interval = interval or (not measure and stride % ROUND == 0)


def count_in(
    event: RunEvent,
    steps: Rows,
    place: int,
    ends: Mapping[str, int],
    *,
    timed: bool,
    total: bool = False,
    shared: bool = False,
) -> Count:
    """The count of an event whose steps are known."""
    return Count(
        steps,
        max(seen.count for seen in event.nodes.values()),
        event.count,
        _speed(steps, timed=timed),
        total,
        _LOSS.search(event.text) is not None,
        all(states_value(row[-1].spot.text) for row in steps),
        form_of(event),
        place,
        max((row[-1].spot.offset - row[0].spot.offset) / max(1, ends.get(row[0].spot.source, 0)) for row in steps),
        shared,
    )


def _is_of(rows: Rows, place: int) -> tuple[bool, bool]:
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


def _speed(rows: Rows, *, timed: bool) -> float:
    """By how much the longest row rises in a second, in a byte where the run has no times; infinite if that is not known."""
    row = max(rows, key=len)
    first, last = row[0], row[-1]
    timed = timed and first.spot.time is not None
    length = (last.spot.time or 0.0) - (first.spot.time or 0.0) if timed else last.spot.offset - first.spot.offset
    return (last.step - first.step) / length if length > 0 else math.inf


def _counts(column: Sequence[float]) -> bool:
    """Whether numbers are whole and rise; ranks that share a log may write the same one each."""
    if not all(value == int(value) and 0 <= value < HIGHEST for value in column):
        return False
    rises = all(after >= before for before, after in pairwise(column))
    return (
        rises and column[0] < column[-1] and len({*column}) * 2 >= len(column)
    )  # not an epoch in the line of each step


def _counts_together(column: Sequence[float]) -> bool:
    """Whether numbers are whole and rise, and each comes equally often: as many speakers as share the log print it, one after the other."""
    if not all(value == int(value) and 0 <= value < HIGHEST for value in column) or column[0] >= column[-1]:
        return False
    often = Counter(column)
    inner = {often[value] for value in sorted(often)[1:-1] or often}  # those at the edges may not all be kept
    back = [before - after for before, after in pairwise(column) if after < before]
    stride = min(after - before for before, after in pairwise(sorted(often)))
    return (
        len(inner) == 1
        and (1 if len(often) > 2 else 2) < next(iter(inner)) <= MOST_SHARING
        and all(step <= stride for step in back)
        and len(back) * 4 <= len(column)
    )


def _in_common(columns: Sequence[Sequence[float]]) -> bool:
    """Whether the nodes count the same: a number of each node's own is no step."""
    every = {value for column in columns for value in column}
    return len(every) <= 2 * max(map(len, columns))


def _stride(columns: Sequence[Sequence[float]]) -> float:
    """The least amount by which numbers rise from a line to the next that is kept."""
    return min(after - before for column in columns for before, after in pairwise(sorted({*column})))


def _same_stride(columns: Sequence[Sequence[float]]) -> bool:
    """Whether all numbers follow each other by multiples of one amount; lines in between may not have been kept."""
    strides = {after - before for column in columns for before, after in pairwise(sorted({*column}))}
    least = min(strides)
    return all(stride % least == 0 for stride in strides) and all(
        column[0] % least == columns[0][0] % least for column in columns
    )
