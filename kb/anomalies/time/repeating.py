"""Takes a run's steps from the structure that repeats, where none of its lines is a step line that the readers know.

A line that nearly all nodes print again and again, with a number that rises by the same amount from one to the next, counts steps,
whatever its words. Of several such lines the one printed most often is taken, and of each log the last one that is kept: the pace
between them is not known. Lines of a loss that name no step, as some trainers print, are placed between them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from kb.anomalies.core.run import JOB, RANK, LineRef, RunEvent, RunProfile, StepLine
from kb.anomalies.core.severity_words import is_body, is_consequence
from kb.anomalies.nodes.peers import numbers_in

FEWEST = 5  # lines of a node
FEW = 3  # lines of each of `SEVERAL` nodes or more, which count the same
SEVERAL = 3
MOST_NODES = 0.7  # share of the nodes that print the line
_Rows = tuple[tuple[StepLine, ...], ...]

HIGHEST = 10_000_000  # greater numbers are times, sizes and identities


def repeating_steps(run: RunProfile) -> tuple[StepLine, ...]:
    """Steps by the lines that are kept of the event that counts them, in order; none if no event does.

    Lines of a loss that name no step get the step that was under way, as those of their source that count show it.
    """
    nodes = [node for node, kind in run.kinds().items() if node in run.heard and kind != "log"]
    wanted = max(1, MOST_NODES * len(nodes))
    best: tuple[int, _Rows] = (0, ())
    for event in sorted(run.events.values(), key=lambda item: item.id):
        if len(event.nodes) < wanted or is_body(event.text) or is_consequence(event.text):
            continue
        if event.count > best[0] and (rows := _steps(event)):
            best = (event.count, rows)
    losses = _with_steps(run.losses, best[1])
    return losses or tuple(row[-1] for row in best[1])


def _steps(event: RunEvent) -> _Rows:
    """The steps that an event counts in each log, if it counts in all of them."""
    kept: dict[tuple[str, str], dict[int, LineRef]] = defaultdict(dict)
    least = FEW if len(event.nodes) >= SEVERAL else FEWEST
    for node, seen in event.nodes.items():
        if node != JOB and seen.count >= least:
            for spot in seen.spots:  # of one source, several ranks that share it count each for itself
                kept[spot.source, node if node.startswith(RANK) else ""][spot.offset] = spot
    rows = [[(spots[at], numbers_in(spots[at].text)) for at in sorted(spots)] for spots in kept.values()]
    if not rows or min(map(len, rows)) < 2:
        return ()
    width = min(len(numbers) for lines in rows for _, numbers in lines)
    for place in range(width):
        columns = [[numbers[place] for _, numbers in lines] for lines in rows]
        if all(_counts(column) for column in columns) and _same_stride(columns) and _in_common(columns):
            return tuple(tuple(StepLine(spot, int(numbers[place])) for spot, numbers in lines) for lines in rows)
    return ()


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
    return column[0] < column[-1] and all(after >= before for before, after in pairwise(column))


def _in_common(columns: Sequence[Sequence[float]]) -> bool:
    """Whether the nodes count the same: a number of each node's own is no step."""
    every = {value for column in columns for value in column}
    return len(every) <= 2 * max(map(len, columns))


def _same_stride(columns: Sequence[Sequence[float]]) -> bool:
    """Whether all numbers follow each other by multiples of one amount; lines in between may not have been kept."""
    strides = {after - before for column in columns for before, after in pairwise(column) if after > before}
    least = min(strides)
    return all(stride % least == 0 for stride in strides) and all(
        column[0] % least == columns[0][0] % least for column in columns
    )
