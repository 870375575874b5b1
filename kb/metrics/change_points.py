"""Change points on what a run measures of itself: step time, throughput, loss, gradient norm, memory, learning rate.

A step that is known to hold an evaluation or a checkpoint, first steps, single steps that hang back and short spells are
no change. The noise is learned from the series itself. Values that are NaN or missing never count as 0: they are skipped,
and where they themselves are the finding (a loss) they are told as such. Windows count steps, not logged lines.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from kb.metrics.panel import Bools, Floats

Ints = NDArray[np.int64]
LEAST_BLOCKS = 18  # that tell a trend
LARGEST = 1e100  # beyond any measurement; squares of what is below stay finite


@dataclass(frozen=True, slots=True, eq=False)
class Track:
    """One quantity over steps, in order; NaN where it was not measured. `skip`: steps known to be of another kind.

    `times` are seconds since the epoch, NaN where not known.
    """

    metric: str
    steps: Ints
    values: Floats
    times: Floats
    skip: Bools


@dataclass(frozen=True, slots=True)
class Change:
    """A change: its kind, the step at which it began and the one at which it could be told, the levels before and after.

    `size` is after / before - 1; `z` in units of the series' own noise; 0 where that does not apply.
    """

    metric: str
    kind: str
    since: int
    found: int
    before: float
    after: float
    size: float = 0.0
    z: float = 0.0
    time: float | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Slowing:
    """When steps count as slower. `share` is the least change looked for; noise is learned over `past` steps.

    `alarm`, `counted` and `clip` are in units of the noise: how much must add up, what the count takes off that, how much
    one step may add. Of the last `confirm` steps all but two must be `above` that part of the change.
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


def track(
    metric: str,
    values: Sequence[float] | Floats,
    steps: Sequence[int] | Ints | None = None,
    times: Sequence[float] | Floats | None = None,
    skip: Sequence[bool] | Bools | None = None,
) -> Track:
    """A series in order of steps; of several values of a step the last one given counts. ValueError where lengths differ."""
    what = np.array(values, dtype=np.float64)
    what[np.abs(what) > LARGEST] = math.inf
    at = np.arange(what.size) if steps is None else np.asarray(steps, dtype=np.int64)
    when = np.full(what.size, np.nan) if times is None else np.asarray(times, dtype=np.float64)
    other = np.zeros(what.size, dtype=bool) if skip is None else np.asarray(skip, dtype=bool)
    if not what.size == at.size == when.size == other.size:
        raise ValueError("values, steps, times and skip must be of one length")
    order = np.argsort(at, kind="stable")
    at, what, when, other = at[order], what[order], when[order], other[order]
    last = np.append(at[1:] != at[:-1], True) if at.size else np.zeros(0, dtype=bool)
    return Track(metric, at[last], what[last], when[last], other[last])


def slower(series: Track, limits: Slowing = SLOWING) -> tuple[Change, ...]:
    """Lasting rises of the step time of `share` or more, each told once, at the step at which it is sure enough.

    Cumulative sum of what each step is above the middle between the level of the steps before and a level `share` higher,
    in units of the noise, clipped so that no single step decides; then most of the last few steps must be above as well.
    """
    usable = np.flatnonzero(np.isfinite(series.values) & (series.values > 0) & ~series.skip)
    values = np.log(series.values[usable])
    state = _Sum(limits)
    found: list[Change] = []
    for at, value in enumerate(values.tolist()):
        begun = state.add(at, value)
        if begun is None:
            continue
        before, after = math.exp(state.level), math.exp(float(np.median(values[begun : at + 1])))
        found.append(_change(series, "slower", int(usable[begun]), int(usable[at]), before, after, state.noise))
        state.restart(at)
    return tuple(found)


class _Sum:
    """The running level, noise and cumulative sum of a series of logarithms."""

    def __init__(self, limits: Slowing) -> None:
        self.limits = limits
        self.level = self.noise = math.nan
        self.restart(limits.warm_up - 1)

    def restart(self, at: int) -> None:
        """Learn anew from behind a place: what changed has been told, or was the warm-up."""
        self.begin = at + 1
        self.past: list[float] = []
        self.total, self.zero = 0.0, at + 1
        self.recent: list[float] = []
        self.pending: list[float] = []
        self.learned = 0

    def add(self, at: int, value: float) -> int | None:
        """Take one more value; the place at which a rise began, where there is one to be told now."""
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
        """Whether it is many steps that are high, and the last ones as high as the others: a spell would be on its way back."""
        limits = self.limits
        off = [one - self.level for one in self.recent]
        high = [one > limits.above * math.log1p(limits.share) for one in off]
        if sum(high) < limits.confirm - 2 or not high[-1]:
            return False
        return sorted(off[-3:])[1] >= 0.5 * sorted(off)[len(off) // 2]

    def _alarm(self) -> float:
        """What must add up: the smaller the change looked for is beside the noise, the more; counting does a part of it."""
        return max(0.5, self.limits.alarm * self.noise / math.log1p(self.limits.share) - self.limits.counted)

    def _settle(self, at: int) -> None:
        """Nothing has added up: what was held back, high or low, belongs to the level."""
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


def decline(series: Track, share: float = 0.05, *, higher_is_worse: bool = True, blocks: int = 30) -> Change | None:
    """A level that has gone bad by `share` or more since its best, too slowly for any step to show it.

    The series is cut into blocks of steps; the level of a block is the median of it and its two neighbours. None for a
    short series, where the change is within the noise of blocks, where the level is back, and where it leapt or went up
    and down on the way: that is another kind of change, or other work.
    """
    usable = _usable(series, 30)
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
    before, after = (math.exp(sign * float(one)) for one in (level[best], level[-1]))
    return _change(series, "decline", since, int(cut[-1, -1]), before, after, max(noise, 1e-6))


def _gradual(level: Floats, rise: float) -> bool:
    """Whether levels, the best first, go up bit by bit: no one rise is most of it, and little of it is taken back."""
    up = np.diff(level)
    return bool(up.max() <= 0.5 * rise and -up[up < 0].sum() <= 0.5 * rise)


def throughput_drop(series: Track, share: float = 0.7, logged: int = 3, past: int = 200) -> tuple[Change, ...]:
    """Places where a throughput is under `share` of its mean so far for `logged` lines on end; each told once."""
    usable = _usable(series, 5)
    values = series.values[usable]
    found: list[Change] = []
    run, told, good = 0, False, [float(one) for one in values[:10]]
    for at in range(10, values.size):
        mean = sum(good) / len(good)
        run = run + 1 if values[at] < share * mean else 0
        if not run:
            good = [*good[-past + 1 :], float(values[at])]
            told = False
        elif run == logged and not told:
            begun = at - logged + 1
            after = float(np.mean(values[begun : at + 1]))
            found.append(_change(series, "drop", int(usable[begun]), int(usable[at]), mean, after))
            told = True
    return tuple(found)


def loss_broken(series: Track, above: float = 1e3, warm_up: int = 30) -> Change | None:
    """The first place where a loss is lost: NaN or infinite twice on end or at the end, above 1e3, or jumping about.

    It jumps where over five logged steps it spreads six times as far as its noise and most of them lie far above.
    """
    values = np.where(series.skip, np.nan, series.values)
    kept = np.flatnonzero(~series.skip)
    broken = _not_finite(series, kept)
    if broken is not None:
        kept = kept[kept < broken[0]]
    known = kept[np.isfinite(values[kept])]
    told = values[known].tolist()  # windows of fifty: plain numbers are ten times as fast here
    for at in range(1, len(told)):
        here = int(known[at])
        if abs(told[at]) > above:
            usual = _middle(told[max(0, at - 50) : at])
            if abs(usual) < 0.1 * above:
                return _change(series, "above", here, here, usual, told[at])
        if at >= 24 and series.steps[here] - series.steps[0] >= warm_up:
            last = told[at - 4 : at + 1]
            jump = _jumps(told[max(0, at - 54) : at - 4], last)
            if jump is not None:
                return _change(series, "variance", int(known[at - 4]), here, jump, _middle(last))
    if broken is not None:
        text = f"{series.metric} is {series.values[broken[0]]} from step {int(series.steps[broken[0]])} on"
        return _change(series, "not_finite", broken[0], broken[1], 0.0, float(series.values[broken[0]]), text=text)
    return None


def _not_finite(series: Track, kept: Ints, on_end: int = 2) -> tuple[int, int] | None:
    """The first of several values on end that are not finite, and the one at which that is sure."""
    odd = ~np.isfinite(series.values[kept])
    run = 0
    for at in range(kept.size):
        run = run + 1 if odd[at] else 0
        if run == on_end or (run and at == kept.size - 1):
            return int(kept[at - run + 1]), int(kept[at])
    return None


def _jumps(prior: Sequence[float], last: Sequence[float]) -> float | None:
    """The usual level, where five values spread far more than the noise before them and most lie far above it."""
    if len(prior) < 20:
        return None
    level = _middle(prior[-10:])
    noise = max(1e-3 * abs(level), 1e-12)
    if sum(one > level + 5.0 * noise for one in last) < 3:
        return None
    noise = max(noise, 1.4826 * _middle([abs(two - one) for one, two in pairwise(prior)]) / math.sqrt(2.0))
    far = sum(one > level + 5.0 * noise for one in last)
    return level if far >= 3 and _spread(last) > 6.0 * noise else None


def _spread(values: Sequence[float]) -> float:
    """The standard deviation of a few numbers; infinite where their squares are too large."""
    mean = sum(values) / len(values)
    return math.sqrt(sum((one - mean) * (one - mean) for one in values) / len(values))


def _middle(values: Sequence[float]) -> float:
    """The median of a few finite numbers."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else 0.5 * (ordered[half - 1] + ordered[half])


def gradient_jump(series: Track, times: float = 5.0, logged: int = 3) -> Change | None:
    """The first place where the gradient norm is so many times its usual one for some lines on end, or NaN for long."""
    kept = np.flatnonzero(~series.skip)
    broken = _not_finite(series, kept, 8)
    known = kept[np.isfinite(series.values[kept])]
    run = 0
    good: list[float] = []
    for at in known.tolist():
        value = float(series.values[at])
        usual = _middle(good[-50:]) if len(good) >= 20 else math.inf
        run = run + 1 if value > times * usual else 0
        if not run:
            good.append(value)
        elif run == logged:
            since = int(known[np.searchsorted(known, at) - logged + 1])
            return _change(series, "jump", since, at, usual, value)
    if broken is not None and broken[1] > broken[0]:
        text = f"{series.metric} is not finite from step {int(series.steps[broken[0]])} on"
        return _change(series, "not_finite", broken[0], broken[1], 0.0, math.nan, text=text)
    return None


def memory_growth(series: Track, a_step: float = 50e6, window: int = 40) -> Change | None:
    """Memory (bytes) that grows by `a_step` a step to the series' end, over `window` steps or more, and is not released."""
    usable = np.flatnonzero(np.isfinite(series.values) & ~series.skip)
    values, steps = series.values[usable], series.steps[usable]
    if usable.size < 6 or steps[-1] - steps[0] < window:
        return None
    falls = np.flatnonzero(np.diff(values) < -max(4 * a_step, 0.02 * float(values.max())))
    begin = int(falls[-1]) + 1 if falls.size else 0
    edges = steps[np.concatenate([[0], falls + 1])]
    usual = int(np.diff(edges).max()) if falls.size else 0  # what was released after so many steps will be again
    begin = max(begin, int(np.searchsorted(steps, steps[0] + 5)))  # first steps allocate
    values, steps = values[begin:], steps[begin:]
    if values.size < 5 or steps[-1] - steps[0] < max(window, 2 * usual):
        return None
    late = values.size // 2
    rates = [_rate(steps[part], values[part]) for part in (slice(0, late), slice(late, None))]
    if min(rates) < a_step or (np.diff(values) < 0).mean() > 0.2:
        return None
    first, last = int(usable[begin]), int(usable[-1])
    rate = _rate(steps, values)
    text = f"memory grows by {rate / 1e6:.0f} MB a step, from {values[0] / 1e9:.1f} to {values[-1] / 1e9:.1f} GB"
    return _change(series, "growth", first, last, float(values[0]), float(values[-1]), text=text)


def _rate(steps: Ints, values: Floats) -> float:
    """How much values rise a step, by the medians of their two halves."""
    half = steps.size // 2
    apart = float(np.median(steps[half:]) - np.median(steps[:half]))
    return float(np.median(values[half:]) - np.median(values[:half])) / apart if apart > 0 else 0.0


def off_schedule(series: Track, steps: int = 30, expected: Track | None = None) -> Change | None:
    """A learning rate that is off its schedule: off the `expected` one; else NaN, 0 for long, stuck half way, or leaping.

    Without an expected one a rate is stuck where it fell with every line and then stays, well above a usual floor (a
    tenth of its peak), for `steps` steps; it leaps where one line brings twice the highest rate before.
    """
    usable = np.flatnonzero(~series.skip)
    values = series.values[usable]
    if expected is not None:
        return _beside(series, usable, expected)
    if usable.size < 12:
        return None
    if not np.isfinite(values[-2:]).any():
        bad = int(usable[np.flatnonzero(np.isfinite(values))[-1] + 1]) if np.isfinite(values).any() else int(usable[0])
        return _change(series, "not_finite", bad, int(usable[-1]), 0.0, math.nan, text=f"{series.metric} is not finite")
    usable = usable[np.isfinite(values)]
    return _leaps(series, usable) or _stays(series, usable, steps)


def _stays(series: Track, usable: Ints, steps: int) -> Change | None:
    """A rate that ends at 0, or half way down, and has been there for long."""
    values, at_step = series.values[usable], series.steps[usable]
    same = np.flatnonzero(values != values[-1])
    begin = int(same[-1]) + 1 if same.size else 0
    if at_step[-1] - at_step[begin] < steps or values.size - begin < 5:
        return None
    first, last, peak = int(usable[begin]), int(usable[-1]), float(values.max())
    before = values[max(0, begin - 10) : begin + 1]
    fell = before.size >= 6 and bool((np.diff(before) < 0).all())
    was = float(values[begin - 1]) if begin else 0.0
    if values[-1] == 0.0 and not (fell and was < 0.02 * peak):
        return _change(series, "zero", first, last, was, 0.0)
    if fell and 0.15 * peak < values[-1] < 0.98 * peak:
        return _change(series, "stuck", first, last, was, float(values[-1]))
    return None


def _leaps(series: Track, usable: Ints) -> Change | None:
    """A rate that goes from one line to the next to twice the highest before, not in a warm-up."""
    values = series.values[usable]
    high = np.maximum.accumulate(values)
    for at in range(10, values.size - 1):  # a last line may be cut
        before = float(high[at - 1])
        if (
            0 < 2.0 * before < min(values[at], values[at + 1])
            and values[at - 1] > 0
            and not _warming(values[at - 10 : at])
        ):
            return _change(series, "leap", int(usable[at]), int(usable[at]), before, float(values[at]))
    return None


def _warming(before: Floats) -> bool:
    """Whether a rate still rose with every line: the warm-up may go on in wider steps."""
    return bool((np.diff(before) > 0).all())


def _beside(series: Track, usable: Ints, expected: Track) -> Change | None:
    """Three lines on end that are off an expected schedule by more than a twentieth."""
    wanted = dict(zip(expected.steps.tolist(), expected.values.tolist(), strict=True))
    run = 0
    for place, at in enumerate(usable.tolist()):
        want = wanted.get(int(series.steps[at]))
        if want is None or not math.isfinite(want):
            continue
        value = float(series.values[at])
        run = run + 1 if not abs(value - want) <= 0.05 * abs(want) + 1e-12 else 0
        if run == 3:
            since = int(usable[max(0, place - 2)])
            return _change(series, "off", since, at, want, value)
    return None


def _usable(series: Track, warm_up: int) -> Ints:
    """Places of positive values behind the warm-up, without steps of another kind."""
    kept = np.flatnonzero(np.isfinite(series.values) & (series.values > 0) & ~series.skip)
    return kept[warm_up:] if kept.size > 2 * warm_up else kept[:0]


def _change(  # noqa: PLR0917 - a change is just these
    series: Track, kind: str, since: int, found: int, before: float, after: float, noise: float = 0.0, text: str = ""
) -> Change:
    """A change between two places of a series."""
    size = after / before - 1 if before else 0.0
    time = float(series.times[since])
    z = math.log(after / before) / noise if noise and before > 0 and after > 0 else 0.0
    step = int(series.steps[since])
    return Change(
        series.metric,
        kind,
        step,
        int(series.steps[found]),
        before,
        after,
        size,
        z,
        time if math.isfinite(time) else None,
        text or f"{series.metric} goes from {before:.4g} to {after:.4g} ({size:+.1%}) at step {step}",
    )
