"""The heat map of an incident as a value: each rank's time for each step beside that of the other ranks, so who got slow, and when.

Ranks wait for each other in every step, so the time of whole steps is the same for all: what a rank reports of its own
work tells them apart.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median_high, median_low

import numpy as np

from kb.facts.evidence import Evidence
from kb.metrics.panel import Floats
from kb.model import ProgressPoint, Resource
from kb.report import Report, ranges
from kb.timeline.onset import first_step_apart
from kb.timeline.per_step import binned, by_step, points_by_origin, rank_order, usual_by_step, values_of
from kb.timeline.rows import cleaned
from kb.timeline.standouts import has_trouble

COLUMNS = 120
LANES = 32  # ranks with a row of their own; with more, a row is a node
APART = 8  # ranks that keep a row of their own even then
LABEL = 40  # characters
LEAST_RANKS, LEAST_STEPS = 3, 3
MOST_TOLD = 3  # ranks, or groups of ranks that became slow together, that the finding names
MOST_NODES = 3  # nodes that the finding names beside their ranks
TOGETHER = 2  # columns within which ranks become slow together, and end so
ALIKE = 1.25  # ratio of their largest multiples up to which they are equally slow
MOST_UNKNOWN = 0.02  # share of the columns without a value, from which they are made wider
LEAST_COLUMNS = 24  # for that
LEVELS = (
    1.1,
    1.2,
    1.35,
    1.5,
    1.75,
    2.0,
    2.5,
    3.0,
    4.0,
)  # multiples of the median from which a cell has the level 1 to 9
SLOW = 1.3  # multiple of the median; a rank is slow where the middle of `RUN` values in a row is above it
RUN = 5  # columns; less than that is noise, such as a rank that saves
NOISE = 3.0  # usual changes of a rank from one column to the next, by which it must be slower too
_MEASURED = {"compute": "Own work in a step", "seconds": "Step time"}


@dataclass(frozen=True, slots=True)
class HeatRow:
    """One rank, or the ranks of a node. `cells`: one character per column, see `LEVELS`; a dot where nothing is known.

    `worst`: its largest multiple of the median, `at`: the step of that; `slow`: the first and last step in which it was
    slow, None if it never was for long.
    """

    label: str
    cells: str
    worst: float
    at: int
    count: int = 1
    node: str = ""
    slow: tuple[int, int] | None = None
    suspect: bool = False


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Rows by rank or node over steps, with columns as those of a chart (kb.timeline.curves.Chart).

    `failing`: the step of the failure, if it is one of these; `ranks`: how many were compared; `slow`: the ranks that were
    slow for long; `finding`: who they are and since when, in words; `folded`: what was folded.
    """

    title: str
    start: float
    width: float
    columns: int
    ranks: int
    rows: tuple[HeatRow, ...]
    finding: str
    folded: str = ""
    failing: int | None = None
    slow: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Onset:
    """The steps between which a rank became slow: the last one known before, and the first one known from which it was.

    `metric`: the field of its points (kb.model.ProgressPoint) that shows it.
    """

    who: Resource
    metric: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class _Grid:
    """The multiples of the median, a row per rank and a column per step or several; NaN where nothing is known.

    `slow`: the first and the last column in which each rank was slow, None if it never was for long; `begun`: by rank, the
    last step before it was slow and the first one in which it was, where they are known better than by the column.
    """

    who: tuple[Resource, ...]
    times: Floats
    start: float
    width: float
    slow: tuple[tuple[int, int] | None, ...]
    begun: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    def span(self, at: int) -> tuple[int, int] | None:
        """Return the first and the last step in which a rank was slow."""
        columns = self.slow[at]
        if columns is None:
            return None
        return self.begun[at][1] if at in self.begun else self.step(columns[0]), self.step(columns[1])

    def step(self, column: int) -> int:
        """Return the first step of a column."""
        return math.ceil(self.start + column * self.width)

    def worst(self, at: int) -> float:
        """Return the largest multiple of the median of a rank that is known."""
        return float(np.nanmax(self.times[at]))

    def whole_nodes(self, members: Sequence[int]) -> list[str]:
        """Return the nodes that these ranks are all the ranks of; empty if they are anything else."""
        size, own = Counter(who.node for who in self.who), Counter(self.who[at].node for at in members)
        whole = all(node and 1 < count == size[node] for node, count in own.items())
        return sorted((node for node in own if node), key=lambda node: (len(node), node)) if whole else []


def heat_map(evidence: Evidence, report: Report) -> HeatMap | None:
    """Return the map of the first quantity in which ranks differ; None where none is logged by rank or none was slow."""
    if not has_trouble(report):
        return None
    points = points_by_origin(evidence)
    metric, grid = _slow_in(points)
    return (
        None if grid is None else _drawn(replace(grid, begun=_begun(grid, points, metric)), _MEASURED[metric], report)
    )


def onsets(evidence: Evidence, report: Report) -> tuple[Onset, ...]:
    """Return where slow ranks became slow, for ranks whose steps around that point are missing because summaries of long logs omit them."""
    if not has_trouble(report):
        return ()
    points = points_by_origin(evidence)
    metric, grid = _slow_in(points)
    if grid is None:
        return ()
    return tuple(
        Onset(grid.who[at], metric, before, after)
        for at, (before, after) in _begun(grid, points, metric).items()
        if before + 1 < after
    )


def _slow_in(points: Mapping[Resource, Sequence[ProgressPoint]]) -> tuple[str, _Grid | None]:
    """Return the first quantity in which a rank was slow, and each rank's multiples of its median; None if none was."""
    for metric in _MEASURED:
        values = {
            who: found for who, own in points.items() if who.rank is not None and (found := values_of(own, metric))
        }
        grid = _grid(values)
        if grid is not None and any(grid.slow):
            return metric, grid
    return "", None


def _begun(
    grid: _Grid, points: Mapping[Resource, Sequence[ProgressPoint]], metric: str
) -> Mapping[int, tuple[int, int]]:
    """Return the last step before each rank was slow, and the first one of the two columns around its first slow one in which it was."""
    slow = [(at, columns) for at, columns in enumerate(grid.slow) if columns is not None]
    found: dict[int, tuple[int, int]] = {}
    first = int(np.flatnonzero(np.isfinite(grid.times).any(axis=0))[0])
    usual = usual_by_step(points, metric) if slow else {}
    for at, (begin, end) in slow:
        if begin <= first:
            continue  # from the first step on
        level = float(np.nanmedian(grid.times[at][begin : end + 1])) - 1.0
        shares = by_step(points[grid.who[at]], usual, metric)
        step = first_step_apart(shares, level, grid.start + (begin - 1) * grid.width, grid.width)
        if step is not None:
            found[at] = max((earlier for earlier, _ in shares if earlier < step), default=step), step
    return found


def _grid(values: Mapping[Resource, Sequence[tuple[int, float]]]) -> _Grid | None:
    """Return each rank's values as multiples of the median of all ranks in the same column."""
    steps = [step for found in values.values() for step, _ in found]
    if len(values) < LEAST_RANKS or not steps or len(set(steps)) < LEAST_STEPS:
        return None
    start, end = min(steps), max(steps)
    logged = min(after - before for before, after in pairwise(sorted(set(steps))))
    width = float(logged * max(1, math.ceil((end + 1 - start) / (logged * COLUMNS))))  # whole logged steps
    who, found = zip(*sorted(values.items(), key=rank_order), strict=True)
    every = _binned(found, start, end, width)
    while every.shape[1] >= 2 * LEAST_COLUMNS and _unknown(every) > MOST_UNKNOWN:  # of a long run, steps are left out
        width *= 2
        every = _binned(found, start, end, width)
    with warnings.catch_warnings(), np.errstate(divide="ignore", invalid="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)  # columns without any value
        times = every / np.nanmedian(every, axis=0)
    times[~np.isfinite(times)] = np.nan
    known = np.isfinite(times).any(axis=0)
    if int(known.sum()) < LEAST_STEPS:
        return None
    least = max(SLOW, 1.0 + NOISE * _noise(times))  # the multiple from which a rank is slow
    return _Grid(who, times, start - 0.5, width, tuple(_slow(row, least) for row in times))


def _binned(found: Sequence[Sequence[tuple[int, float]]], start: int, end: int, width: float) -> Floats:
    """Return a row per rank and a column per `width` steps; NaN where too few ranks are known."""
    count = math.ceil((end + 1 - start) / width)
    every = np.stack([binned(values, start, width, count)[0] for values in found])
    every[:, np.isfinite(every).sum(axis=0) < LEAST_RANKS] = np.nan  # the median of two is neither's
    return every


def _unknown(every: Floats) -> float:
    """Return the share of the columns in which nothing is known."""
    return float(np.mean(~np.isfinite(every).any(axis=0)))


def _noise(times: Floats) -> float:
    """Return how much a rank usually changes from one column to the next: the median of all changes."""
    changes = [abs(np.diff(row[np.isfinite(row)])) for row in times]
    every = np.concatenate(changes)
    return float(np.median(every)) if every.size else 0.0


def _drawn(grid: _Grid, title: str, report: Report) -> HeatMap:
    groups, folded = _lanes(grid, report)
    rows = tuple(_row(grid, members, report) for members in groups)
    return HeatMap(
        title=title,
        start=grid.start,
        width=grid.width,
        columns=grid.times.shape[1],
        ranks=len(grid.who),
        rows=rows,
        finding=_finding(grid),
        folded=folded,
        failing=_failing(grid, report),
        slow=tuple(who.rank for at, who in enumerate(grid.who) if grid.slow[at] is not None and who.rank is not None),
    )


def _failing(grid: _Grid, report: Report) -> int | None:
    step = report.diagnoses[0].iteration if report.diagnoses else None
    end = grid.start + grid.width * grid.times.shape[1]
    return step if step is not None and grid.start <= step < end and report.phase != "degraded" else None


def _lanes(grid: _Grid, report: Report) -> tuple[list[list[int]], str]:
    """Return the indices of ranks of each row: one each, or a node's where there are many, and what was folded."""
    every = list(range(len(grid.who)))
    if len(every) <= LANES:
        return [[at] for at in every], ""
    named = {who.rank for diagnosis in report.diagnoses[:1] for who in diagnosis.suspects}
    slow = [at for at in every if grid.slow[at] is not None]
    apart = [] if len(slow) > APART and grid.whole_nodes(slow) else slow
    apart.sort(key=lambda at: (grid.who[at].rank not in named, -grid.worst(at)))
    apart = sorted(apart[:APART])
    rest = [at for at in every if at not in apart]
    nodes = {grid.who[at].node for at in rest}
    size = math.ceil(len(rest) / LANES)
    lanes: dict[object, list[int]] = {}
    for place, at in enumerate(rest):
        lanes.setdefault(
            grid.who[at].node if None not in nodes and 1 < len(nodes) <= 2 * LANES else place // size, []
        ).append(at)
    told = f"{len(rest):,} of {len(every):,} ranks are folded into {len(lanes)} rows, which show their slowest rank"
    return [*([at] for at in apart), *lanes.values()], told


def _row(grid: _Grid, members: Sequence[int], report: Report) -> HeatRow:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # columns without any value
        times = np.nanmax(grid.times[members], axis=0)
    column = int(np.nanargmax(times)) if np.isfinite(times).any() else 0
    span = max((grid.span(at) for at in members), key=lambda one: one[1] - one[0] if one else -1)
    who = [grid.who[at] for at in members]
    nodes = {item.node for item in who}
    ranks = ranges(item.rank for item in who if item.rank is not None)
    return HeatRow(
        label=cleaned(f"rank {ranks}" if len(who) == 1 else f"ranks {ranks}", LABEL),
        cells="".join("." if math.isnan(value) else str(sum(value >= least for least in LEVELS)) for value in times),
        worst=round(float(times[column]), 2) if math.isfinite(times[column]) else 1.0,
        at=grid.step(column),
        count=len(who),
        node=cleaned(next(iter(nodes)) or "", LABEL) if len(nodes) == 1 else "",
        slow=span,
        suspect=len(who) == 1 and _is_suspect(who[0], report),
    )


def _slow(times: Floats, least: float) -> tuple[int, int] | None:
    """Return the first and the last column in which a rank was slow; None if it never was for long."""
    known = np.flatnonzero(np.isfinite(times))
    if known.size < LEAST_STEPS:
        return None
    run = min(RUN, known.size)
    middles = np.median(np.lib.stride_tricks.sliding_window_view(times[known], run), axis=1)
    runs = np.flatnonzero(middles >= least)
    if not runs.size:
        return None
    within = known[runs[0] : runs[-1] + run]
    slow = within[times[within] >= SLOW]
    return int(slow[0]), int(slow[-1])


def _is_suspect(who: Resource, report: Report) -> bool:
    suspects = report.diagnoses[0].suspects if report.diagnoses else ()
    return any(
        item.rank == who.rank if item.rank is not None else item.node is not None and item.node == who.node
        for item in suspects
    )


def _finding(grid: _Grid) -> str:
    """Return who was slow and in which steps, in a sentence, the slowest first."""
    known = np.flatnonzero(np.isfinite(grid.times).any(axis=0))
    edges = grid.step(int(known[0])), grid.step(int(known[-1]))
    groups = _together(grid)
    told = [
        f"{_called(grid, group)} {_when(_common(grid, group), edges)}, up to {grid.worst(group[0]):.2g} times the median"
        for group in groups[:MOST_TOLD]
    ]
    more = sum(len(group) for group in groups[MOST_TOLD:])
    return f"Slow: {'; '.join(told)}{f'; and {more} more' if more else ''}"


def _together(grid: _Grid) -> list[list[int]]:
    """Return the slow ranks in groups that were about equally slow in about the same steps, the slowest first."""
    groups: list[list[int]] = []
    slow = [(at, columns) for at, columns in enumerate(grid.slow) if columns is not None]
    for at, columns in sorted(slow, key=lambda item: -grid.worst(item[0])):
        for group in groups:
            first = grid.slow[group[0]] or columns
            apart = max(abs(mine - theirs) for mine, theirs in zip(columns, first, strict=True))
            if apart <= TOGETHER and grid.worst(group[0]) <= ALIKE * grid.worst(at):
                group.append(at)
                break
        else:
            groups.append([at])
    return groups


def _common(grid: _Grid, group: Sequence[int]) -> tuple[int, int]:
    """Return the first and the last slow step of most ranks of a group."""
    spans = [span for at in group if (span := grid.span(at)) is not None]
    known = [grid.begun[at] for at in group if at in grid.begun]
    least = min((after - before for before, after in known), default=0)  # of some, the lines in between were read
    begun = [after for before, after in known if after - before == least] or [first for first, _ in spans]
    return median_low(begun), median_high(last for _, last in spans)


def _called(grid: _Grid, group: Sequence[int]) -> str:
    """Return the name of a group: its ranks, and the nodes where it is all of theirs."""
    ranks = ranges(rank for at in group if (rank := grid.who[at].rank) is not None)
    nodes = [cleaned(node, LABEL) for node in grid.whole_nodes(group)]
    more = f" and {len(nodes) - MOST_NODES} more nodes" if len(nodes) > MOST_NODES else ""
    where = f" (all of {', '.join(nodes[:MOST_NODES])}{more})" if nodes else ""
    return f"{'rank' if len(group) == 1 else 'ranks'} {cleaned(ranks, LABEL)}{where}"


def _when(slow: tuple[int, int], edges: tuple[int, int]) -> str:
    if slow == edges:
        return "in all steps"
    if slow[1] == edges[1]:
        return f"from step {slow[0]:,} on"
    return f"up to step {slow[1]:,}" if slow[0] == edges[0] else f"from step {slow[0]:,} to {slow[1]:,}"
