"""Compares the timings in each rank's own lines to find ranks whose work takes longer or that wait longer for data.

In a synchronous job all ranks' steps take the same time, but a rank that measures its own part of the step (before it
joins the others) shows which rank is slow. All ranks do the same work; if they do not by design (stages of a pipeline),
a rank is compared only with its own past.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import islice
from statistics import median

from kb.model import OWN
from kb.scanning.summary import LAST_POINTS, StreamSummary
from kb.values import dataclass

LEAST_RANKS = 4
LEAST_STEPS = 5
STEPS = 200  # number of recent steps compared
SHARE = 0.3  # factor over the median rank
STANDING = 0.5  # the same factor for ranks that were slow from the first step on
OFTEN = 0.8
SPREADS = 5.0
HEAVY = 0.1  # minimum share of a step for a wait for data to count
HEAVY_BY_DESIGN = 0.35  # the same for ranks whose position gives them more work from the first step on
LEAST_SECONDS = 1e-3  # printed by logs as 0.000; shorter times are rounded up to this
LOGS = 16  # number of logs used to find the duration of a step
MOST_RANKS = 20_000
FIELDS = {"compute_time": "compute", "data_wait": "data"}


@dataclass(frozen=True, slots=True)
class SlowRank:
    """A rank whose own work takes longer: its seconds and the median rank's, the number of steps, and the first of them."""

    metric: str
    rank: int
    value: float
    usual: float
    steps: int
    since: int
    standing: bool
    source: str

    @property
    def text(self) -> str:
        """Describe it in one sentence."""
        what = "works" if self.metric == "compute_time" else "waits for data"
        usual = f"{self.usual:.4g}" if self.usual > 1.01 * LEAST_SECONDS else f"at most {LEAST_SECONDS:g}"
        since = "from its first steps on" if self.standing else f"since step {self.since}"
        return f"rank {self.rank} {what} {self.value:.4g} s a step, the median rank {usual} s, {since}"


@dataclass(frozen=True, slots=True)
class SlowGroup:
    """Up to half of the ranks, if all of them take longer than the others, and the difference in seconds."""

    metric: str
    ranks: frozenset[int]
    value: float
    usual: float
    steps: int
    since: int
    source: str


@dataclass(frozen=True, slots=True)
class RankTable:
    """The values as rank → step → seconds, and the source of each rank's lines."""

    rows: dict[int, dict[int, float]]
    sources: dict[int, str]


def slow_ranks(streams: Iterable[StreamSummary], *, uneven: bool = False) -> tuple[SlowRank, ...]:
    """Return the ranks that are slower than the others, the slowest first. `uneven`: ranks differ by design."""
    summaries = tuple(streams)
    work = _table(summaries, "compute")
    step = max(_level(work), step_seconds(summaries))
    found = []
    for metric, field in FIELDS.items():
        table = work if field == "compute" else _table(summaries, field)
        least = (HEAVY * step or math.inf) if metric == "data_wait" else 0.0
        found += [
            slow
            for slow in odd_ranks(metric, table, uneven=uneven)
            if slow.value - slow.usual >= max(least, by_design(slow, table.rows) * step)
        ]
    return tuple(sorted(found, key=lambda item: (item.usual - item.value, item.rank)))


def slow_group(streams: Iterable[StreamSummary]) -> SlowGroup | None:
    """Return ranks that are clearly slower than at least as many others, if there are too many to be outliers."""
    table = _table(tuple(streams), "compute")
    ratios = _ratios(table, low=True)
    if len(ratios) < LEAST_RANKS:
        return None
    levels = {rank: median(item.values()) for rank, item in ratios.items()}
    slow = frozenset(rank for rank, level in levels.items() if level >= math.log1p(SHARE))
    quick = [level for rank, level in levels.items() if rank not in slow]
    if not 2 <= len(slow) <= len(levels) // 2:
        return None
    least = min(levels[rank] for rank in slow)
    often = [sum(v >= least / 2 for v in ratios[rank].values()) / len(ratios[rank]) for rank in slow]
    if least < 2 * max(quick) or min(often) < OFTEN:
        return None
    values = [median(table.rows[rank].values()) for rank in slow]
    rest = [median(table.rows[rank].values()) for rank in levels if rank not in slow]
    first = min(slow)
    steps = sorted(ratios[first])
    return SlowGroup("compute_time", slow, median(values), median(rest), len(steps), steps[0], table.sources[first])


def _table(summaries: Sequence[StreamSummary], field: str) -> RankTable:
    """Return each rank's recent values by step. The last value of a step counts; values that are not durations are omitted."""
    rows: dict[int, dict[int, float]] = {}
    sources: dict[int, str] = {}
    for summary in summaries:
        if summary.ref.kind != "job":
            continue
        for point in summary.series.points:
            value = getattr(point, field)
            rank = point.rank if point.rank is not None else summary.ref.resource.rank
            if value is None or rank is None or point.step is None or not 0 <= value < 1e9:
                continue
            if rank in rows or len(rows) < MOST_RANKS:
                rows.setdefault(rank, {})[point.step] = float(value)
                sources.setdefault(rank, summary.ref.uri)
    last = {rank: dict(sorted(row.items())[-STEPS:]) for rank, row in rows.items()}
    return RankTable(last, sources)


def _level(table: RankTable) -> float:
    return median(median(row.values()) for row in table.rows.values()) if table.rows else 0.0


def by_design(slow: SlowRank, ranks: Iterable[int]) -> float:
    """Return the share of a step by which a rank's position may slow it: the first and last ranks often do more work."""
    known = set(ranks)
    return HEAVY_BY_DESIGN if slow.standing and slow.rank in (min(known), max(known)) else 0.0


def step_seconds(streams: Iterable[StreamSummary]) -> float:
    """Return the seconds per step from the times of step lines, otherwise as printed; 0.0 if unknown."""
    clocked, printed = [], []
    for summary in islice((item for item in streams if item.ref.kind == "job" and item.series.points), LOGS):
        points = [p for p in summary.series.points if p.step is not None and (p.format == OWN or not p.validation)]
        timed = [(p.step or 0, p.time) for p in points if p.time is not None][-LAST_POINTS:]
        for (first, start), (last, end) in zip(timed[:1], timed[-1:], strict=True):
            if last > first and end > start:
                clocked.append((end - start) / (last - first))
        printed += [p.seconds for p in points[-LEAST_STEPS:] if p.seconds is not None and p.seconds > 0]
    return median(clocked or printed or [0.0])


def _ratios(table: RankTable, *, low: bool = False) -> dict[int, dict[int, float]]:
    """Return rank → step → logarithm of value over median, for the steps that most ranks report, except the first.

    `low`: use the median of the faster half, for cases in which half of the ranks may be slow.
    """
    steps: dict[int, list[float]] = {}
    for row in table.rows.values():
        for step, value in row.items():
            steps.setdefault(step, []).append(value)
    wanted = max(LEAST_RANKS, 0.6 * len(table.rows))
    usual = {}
    for step in islice(sorted(steps), 1, None):  # the first step is a warm-up
        values = sorted(steps[step])
        if len(values) >= wanted:
            usual[step] = median(values[: (len(values) + 1) // 2] if low else values)
    ratios = {
        rank: {s: math.log(max(v, LEAST_SECONDS) / max(usual[s], LEAST_SECONDS)) for s, v in row.items() if s in usual}
        for rank, row in table.rows.items()
    }
    return {rank: row for rank, row in ratios.items() if len(row) >= LEAST_STEPS}


def odd_ranks(metric: str, table: RankTable, *, uneven: bool = False) -> list[SlowRank]:
    """Return the ranks, at most a fifth, whose values exceed the median at most steps. Needs LEAST_RANKS ranks."""
    ratios = _ratios(table)
    if len(ratios) < LEAST_RANKS:
        return []
    levels = {rank: median(row.values()) for rank, row in ratios.items()}
    found = []
    for rank, row in ratios.items():
        if levels[rank] < math.log1p(SHARE) / 2 and max(row.values()) < math.log1p(SHARE):
            continue
        since, standing = _since(row, levels[rank])
        part = {step: value for step, value in row.items() if step >= since}
        level = median(part.values())
        share = STANDING if standing else SHARE
        often = sum(value >= level / 2 for value in part.values()) / len(part)
        least = max(math.log1p(share), SPREADS * _spread(levels, rank))
        if level < least or often < OFTEN or len(part) < LEAST_STEPS:
            continue
        if standing and uneven:
            continue
        values = [table.rows[rank][step] for step in part]
        usual = [table.rows[rank][step] / math.exp(value) for step, value in part.items()]
        found.append(
            SlowRank(metric, rank, median(values), median(usual), len(part), since, standing, table.sources[rank])
        )
    return found if len(found) <= max(1, len(levels) // 5) else []


def _spread(levels: dict[int, float], rank: int) -> float:
    """Return the robust deviation of the other ranks' levels."""
    others = [level for other, level in levels.items() if other != rank]
    middle = median(others)
    return 1.4826 * median(abs(level - middle) for level in others)


def _since(row: dict[int, float], level: float) -> tuple[int, bool]:
    """Return the step at which a rank last became slow, and whether it is the rank's first step."""
    steps = sorted(row)
    late = median([row[step] for step in steps[-LEAST_STEPS:]])
    top = max(level, late)
    calm = [at for at in range(len(steps) - 1) if row[steps[at]] < top / 2 and row[steps[at + 1]] < top / 2]
    if not calm:
        return steps[0], True
    return steps[min(calm[-1] + 2, len(steps) - 1)], False
