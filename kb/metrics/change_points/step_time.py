"""Changes of the step time and the throughput."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kb.metrics.change_points.track import SeriesChange, Track, make_change, usable_places
from kb.metrics.panel import Floats

LEAST_BLOCKS = 18  # minimum number of blocks for a trend


@dataclass(frozen=True, slots=True)
class Slowing:
    """When steps count as slower. `share`: the smallest change to detect; the noise is learned over `past` steps.

    `alarm`, `counted` and `clip` are in units of the noise: the sum that raises an alarm, the reduction of it by the
    number of steps, the most that one step may add. Of the last `confirm` steps all but two must exceed `above`, a part
    of the change.
    """

    share: float = 0.05
    past: int = 400
    least_past: int = 100
    warm_up: int = 30
    alarm: float = 22.0
    counted: float = 3.2
    clip: float = 2.0
    confirm: int = 9
    above: float = 0.4


SLOWING = Slowing()


def slower(series: Track, limits: Slowing = SLOWING) -> tuple[SeriesChange, ...]:
    """Detect lasting rises of the step time by `share` or more; report each once, at the step that confirms it.

    A cumulative sum (CUSUM) of each step's excess over the midpoint between the previous level and a level `share`
    higher, in units of the noise and clipped so that no single step decides; most of the last steps must be high, too.
    """
    usable = np.flatnonzero(np.isfinite(series.values) & (series.values > 0) & ~series.skip)
    values = np.log(series.values[usable])
    state = _CumulativeSum(limits)
    found: list[SeriesChange] = []
    for at, value in enumerate(values.tolist()):
        begun = state.add(at, value)
        if begun is None:
            continue
        before, after = math.exp(state.level), math.exp(float(np.median(values[begun : at + 1])))
        found.append(make_change(series, "slower", int(usable[begun]), int(usable[at]), before, after, state.noise))
        state.restart(at)
    return tuple(found)


class _CumulativeSum:
    """The running level, noise and cumulative sum of a series of logarithms."""

    def __init__(self, limits: Slowing) -> None:
        self.limits = limits
        self.level = self.noise = math.nan
        self.restart(limits.warm_up - 1)

    def restart(self, at: int) -> None:
        """Learn the level again from an index on, after a reported change or the warm-up."""
        self.begin = at + 1
        self.past: list[float] = []
        self.total, self.zero = 0.0, at + 1
        self.recent: list[float] = []
        self.pending: list[float] = []
        self.learned = 0

    def add(self, at: int, value: float) -> int | None:
        """Add a value; return the index at which a rise began if it is confirmed now, else None."""
        if at < self.begin:
            return None
        limits = self.limits
        if len(self.past) < limits.least_past:
            self.past.append(value)
            self._learn()
            self.zero = at + 1
            return None
        middle = self.level + 0.5 * math.log1p(limits.share)
        excess = (value - middle) / self.noise
        self.total = max(0.0, self.total + min(max(excess, -limits.clip), limits.clip))
        self.pending.append(value)
        self.recent = [*self.recent[-(limits.confirm - 1) :], value]
        if self.total == 0.0:
            self._settle(at)
            return None
        if self.total >= self._alarm() and self._lasts():
            return self.zero
        return None

    def _lasts(self) -> bool:
        """Whether many steps are high and the last ones as high as the others; a short spell would be falling."""
        limits = self.limits
        off = [job_summary - self.level for job_summary in self.recent]
        high = [item > limits.above * math.log1p(limits.share) for item in off]
        if sum(high) < limits.confirm - 2 or not high[-1]:
            return False
        return sorted(off[-3:])[1] >= 0.5 * sorted(off)[len(off) // 2]

    def _alarm(self) -> float:
        """Return the alarm threshold: higher for changes that are small relative to the noise."""
        return max(0.5, self.limits.alarm * self.noise / math.log1p(self.limits.share) - self.limits.counted)

    def _settle(self, at: int) -> None:
        """Add the withheld values to the level once the sum is back at zero."""
        self.past += self.pending
        self.learned += len(self.pending)
        self.pending.clear()
        self.recent.clear()
        self.zero = at + 1
        if self.learned >= 10:
            self._learn()

    def _learn(self) -> None:
        del self.past[: -self.limits.past]
        known = np.array(self.past)
        self.level = float(np.median(known))
        spread = 1.4826 * float(np.median(np.abs(known - self.level)))
        self.noise = max(spread, 0.1 * math.log1p(self.limits.share))
        self.learned = 0


def decline(
    series: Track, share: float = 0.05, *, higher_is_worse: bool = True, blocks: int = 30
) -> SeriesChange | None:
    """Return a slow decline of the level by `share` or more since its best, which no single step shows.

    The series is split into blocks of steps; the level of a block is the median of it and its two neighbours. None for
    a short series, a change within the noise of blocks, a level that recovered, and one that leapt or went up and down:
    that is another kind of change, or other work.
    """
    usable = usable_places(series, 30)
    size = max(10, usable.size // blocks)
    count = usable.size // size
    if count < LEAST_BLOCKS:
        return None
    cut = usable[usable.size - count * size :].reshape(count, size)
    sign = 1.0 if higher_is_worse else -1.0
    raw = sign * np.median(np.log(series.values[cut]), axis=1)
    level = np.array([np.median(raw[max(0, at - 1) : at + 2]) for at in range(count)])
    best = int(np.argmin(level[: count - 3]))
    noise = 1.4826 * float(np.median(np.abs(np.diff(raw)))) / math.sqrt(2.0)
    rise = float(np.min(level[-3:])) - float(level[best])
    if rise < math.log1p(share) - 1e-12 or rise < 5.0 * noise or not _gradual(level[best:], rise):
        return None
    low = np.flatnonzero(level < level[best] + 0.25 * rise)
    since = int(cut[min(int(low[-1]) + 1, count - 1), 0])
    before, after = (math.exp(sign * float(item)) for item in (level[best], level[-1]))
    return make_change(series, "decline", since, int(cut[-1, -1]), before, after, max(noise, 1e-6))


def _gradual(level: Floats, rise: float) -> bool:
    """Whether levels, the best first, rise gradually: no single rise is most of it, and little of it is reversed."""
    up = np.diff(level)
    return bool(up.max() <= 0.5 * rise and -up[up < 0].sum() <= 0.5 * rise)


def throughput_drop(series: Track, share: float = 0.7, logged: int = 3, past: int = 200) -> tuple[SeriesChange, ...]:
    """Return where throughput is below `share` of its mean so far for `logged` lines in a row, each drop once."""
    usable = usable_places(series, 5)
    values = series.values[usable]
    found: list[SeriesChange] = []
    run, reported, good = 0, False, [float(value) for value in values[:10]]
    for at in range(10, values.size):
        mean = sum(good) / len(good)
        run = run + 1 if values[at] < share * mean else 0
        if not run:
            good = [*good[-past + 1 :], float(values[at])]
            reported = False
        elif run == logged and not reported:
            begun = at - logged + 1
            after = float(np.mean(values[begun : at + 1]))
            found.append(make_change(series, "drop", int(usable[begun]), int(usable[at]), mean, after))
            reported = True
    return tuple(found)
