"""Takes a run's steps from the structure that repeats, where none of its lines is a step line that the readers know.

A line that nearly all nodes print again and again, with a number that rises by the same amount from one to the next, counts steps,
whatever its words. Of several such lines the one printed most often is taken, and of each log the last one that is kept: the pace
between them is not known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from kb.anomalies.core.run import JOB, LineRef, RunEvent, RunProfile, StepLine
from kb.anomalies.core.severity_words import is_body, is_consequence
from kb.anomalies.nodes.peers import numbers_in

FEWEST = 5  # lines of a node
MOST_NODES = 0.7  # share of the nodes that print the line
HIGHEST = 10_000_000  # greater numbers are times, sizes and identities


def repeating_steps(run: RunProfile) -> tuple[StepLine, ...]:
    """Steps by the lines that are kept of the event that counts them, in order; none if no event does."""
    nodes = [node for node, kind in run.kinds().items() if node in run.heard and kind != "log"]
    wanted = max(1, MOST_NODES * len(nodes))
    best: tuple[int, tuple[StepLine, ...]] = (0, ())
    for event in sorted(run.events.values(), key=lambda item: item.id):
        if len(event.nodes) < wanted or is_body(event.text) or is_consequence(event.text):
            continue
        if event.count > best[0] and (steps := _steps(event)):
            best = (event.count, steps)
    return best[1]


def _steps(event: RunEvent) -> tuple[StepLine, ...]:
    """The last step that an event counts in each log, if it counts in all of them."""
    kept: dict[str, dict[int, LineRef]] = defaultdict(dict)
    for node, seen in event.nodes.items():
        if node != JOB and seen.count >= FEWEST:
            for spot in seen.spots:
                kept[spot.source][spot.offset] = spot
    rows = [[(spots[at], numbers_in(spots[at].text)) for at in sorted(spots)] for spots in kept.values()]
    if not rows or min(map(len, rows)) < 2:
        return ()
    width = min(len(numbers) for lines in rows for _, numbers in lines)
    for place in range(width):
        columns = [[numbers[place] for _, numbers in lines] for lines in rows]
        if all(_counts(column) for column in columns) and _same_stride(columns) and _in_common(columns):
            return tuple(StepLine(lines[-1][0], int(lines[-1][1][place])) for lines in rows)
    return ()


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
