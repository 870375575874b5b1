"""Finds the step at which a run turned, by comparison with its own past.

Compared is what a step line states, seconds per step and loss; the distance of windows of events by dynamic time warping, as in L4, is
in bench/l4_faithful.py only. `kb.anomalies.time.stage` finds stages. What recurs in the same run (evaluations, checkpoints, first
steps) did not turn it: a step counts only if the steps after it stay changed.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from kb.anomalies.core.clock_skew import corrected
from kb.anomalies.core.numbers import numbers_in
from kb.anomalies.core.run import LineRef, RunProfile, StepLine

FEWEST = 6  # steps before and, for a loss, after the turn
SLOWER = 1.3  # times as long a step
COARSER = 2.5  # where clocks show whole seconds
FINE = 5.0  # seconds between step lines from which on such clocks are fine enough
SIGMAS = 6.0
MANY = 8  # steps on either side whose mean is compared although they vary
_STEP = re.compile(  # not the step of a scheduler's job, such as 7001.0 or 7001.batch
    r"(?i)\b(?:iteration|iter|global[ _]?step|step)\W{0,3}(\d{1,9})\b(?!\.\w)"
)
_WORDS = re.compile(r"[^\W\d_]{2,}")
STALLED = 600.0  # seconds without a step, at least
LOOSE = 10  # maximum difference in steps between two counters of the same steps
RISING = 3  # values before one that a loss on the rise exceeds
FIRST_STEPS = 3  # slow in every run


@dataclass(frozen=True, slots=True)
class StepChange:
    """The step at which a run changed: the first lines that show it, and how it changed, in words. `why` is "slower", "loss" or "still".

    `lost`: seconds that the slower steps took longer, all together.
    """

    step: int
    why: str
    beats: tuple[StepLine, ...]
    told: str
    size: float
    lost: float = 0.0


@dataclass(frozen=True, slots=True)
class StepCourse:
    """The steps of the job in order, one line each. `interval`: seconds between such lines; `stride`: steps between them."""

    beats: tuple[StepLine, ...]
    times: tuple[float | None, ...]
    interval: float | None
    stride: int

    @property
    def last(self) -> StepLine | None:
        """The last step line."""
        return self.beats[-1] if self.beats else None

    @property
    def stopped(self) -> float | None:
        """When the last step line came."""
        known = [time for time in self.times if time is not None]
        return known[-1] if known else None


def course_of(run: RunProfile, off: Mapping[str, float]) -> StepCourse:
    """The job's steps: those of the source with the most steps up to its end, then those of the source that got furthest."""
    told: dict[str, list[StepLine]] = {}
    for beat in run.beats:
        if not beat.held_out:
            told.setdefault(beat.spot.source, []).append(beat)
    if not told:
        return StepCourse((), (), None, 1)
    rich = {name: sum(b.seconds is not None or b.loss is not None for b in beats) for name, beats in told.items()}
    best = min(told, key=lambda name: (-min(1, rich[name]), -max(b.step for b in told[name]), -len(told[name]), name))
    beats = _rising(sorted(told[best], key=lambda item: item.spot.offset))
    times = tuple(corrected(step_line.spot, off) for step_line in beats)
    ahead = _ahead(run, beats, times, off)
    if ahead:
        beats = tuple(replace(step_line, step=step_line.step + ahead) for step_line in beats)
    gaps = [b - a for a, b in pairwise(times) if a is not None and b is not None and b >= a]
    strides = Counter(b.step - a.step for a, b in pairwise(beats) if b.step > a.step)
    stride = strides.most_common(1)[0][0] if strides else 1
    shown = (median(gaps) or sum(gaps) / len(gaps)) if gaps else None
    return StepCourse(beats, times, run.pace if run.pace is not None else shown, stride)


def _ahead(run: RunProfile, beats: Sequence[StepLine], times: Sequence[float | None], off: Mapping[str, float]) -> int:
    """How far the steps that ranks report are ahead of a bar that restarted its count when the run was resumed."""
    known = [(time, beat.step) for time, beat in zip(times, beats, strict=True) if time is not None]
    gaps = []
    for anchor in run.anchors:
        time = corrected(anchor.spot, off)
        place = bisect_right(known, (time, math.inf)) if time is not None else 0
        if place:
            gaps.append(anchor.step - known[place - 1][1])
    if len(gaps) < FEWEST:
        return 0
    usual = round(median(gaps))
    steady = sum(abs(gap - usual) <= LOOSE for gap in gaps) * 3 >= 2 * len(gaps)
    return usual if steady and usual > 5 * LOOSE else 0


def _rising(beats: Sequence[StepLine]) -> tuple[StepLine, ...]:
    """One line per step, with what all lines of that step state; a step lower than the one before starts over."""
    kept: list[StepLine] = []
    for beat in beats:
        if kept and beat.step == kept[-1].step:
            one = kept[-1]
            kept[-1] = replace(
                one if one.loss is not None or beat.loss is None else replace(one, spot=beat.spot),
                seconds=beat.seconds if one.seconds is None else one.seconds,
                rate=beat.rate if one.rate is None else one.rate,
                loss=beat.loss if one.loss is None else one.loss,
            )
        else:
            kept.append(beat)
    return tuple(kept)


def step_at(course: StepCourse, time: float | None) -> int | None:
    """The step that was under way at a time, as far as the lines show."""
    if not course.beats:
        return None
    last = course.beats[-1]
    if time is None:
        return last.step
    known = [(t, b.step) for t, b in zip(course.times, course.beats, strict=True) if t is not None]
    if not known:
        return last.step
    place = bisect_right([t for t, _ in known], time)
    if place == 0:
        return known[0][1]
    at, step = known[place - 1]
    if place < len(known) or not course.interval:
        return step
    return step + min(course.stride, max(1, round((time - at) / course.interval * course.stride)))


def step_of(run: RunProfile, spot: LineRef) -> int | None:
    """The step that a line counts itself, else that which its speaker, else anybody, last printed in the same source up to it.

    None if no such line is kept.
    """
    told = _told_in(run, spot)
    if told is not None:
        return told
    here = (beat for beat in (*run.beats, *run.counted) if beat.spot.source == spot.source)
    before = [beat for beat in here if beat.spot.offset <= spot.offset]
    own = [beat for beat in before if beat.spot.rank == spot.rank] or before
    return max(own, key=lambda beat: beat.spot.offset).step if own else None


def _told_in(run: RunProfile, spot: LineRef) -> int | None:
    """The step in a line of the form that counts them; of those between the first and the last few, none is kept."""
    form = _WORDS.findall(spot.text)
    alike = [beat for beat in run.counted if _WORDS.findall(beat.spot.text) == form]
    rows = [(numbers_in(beat.spot.text), beat.step) for beat in alike]
    numbers = numbers_in(spot.text)
    width = min(map(len, (numbers, *(row for row, _ in rows)))) if rows else 0
    place = next((at for at in range(width) if all(row[at] == step for row, step in rows)), None)
    return None if place is None or numbers[place] != int(numbers[place]) else int(numbers[place])


def step_named(text: str, course: StepCourse) -> int | None:
    """The step that a line itself names, if it was not done before."""
    match = _STEP.search(text)
    step = int(match[1]) if match else None
    last = course.last
    return step if step is not None and last is not None and step >= last.step else None


def changes(course: StepCourse) -> tuple[StepChange, ...]:
    """Where the job's steps turned for good: became slower, or their loss deviated."""
    found = [step_change for step_change in (_slower(course), _loss(course)) if step_change is not None]
    return tuple(sorted(found, key=lambda step_change: (-step_change.size, step_change.step)))


def _paces(course: StepCourse) -> list[tuple[int, float]]:
    """Seconds per step by index of the line: as stated, else by the stated work per second, else by the clock."""
    for said in (
        [(i, item.seconds) for i, item in enumerate(course.beats) if item.seconds],
        [(i, 1.0 / item.rate) for i, item in enumerate(course.beats) if item.rate],
    ):
        if len(said) * 2 > len(course.beats):
            return said
    # Lines without a time carry that of an earlier line: of several with the same, the first is nearest to it.
    stamped = [
        (i, time, beat.step)
        for i, (time, beat) in enumerate(zip(course.times, course.beats, strict=True))
        if time is not None and (i == 0 or time != course.times[i - 1])
    ]
    if len(stamped) * 2 < len(course.beats):
        return []  # times of other lines, now and then
    coarse = _is_coarse(course)
    return [
        (j, (after - before) / (then - now))
        for (i, before, now), (last, after, then) in pairwise(stamped)
        if after > before and then > now
        for j in range(i + 1 if coarse else last, last + 1)  # the lines of one second share it
    ]


def _is_coarse(course: StepCourse) -> bool:
    """Whether step lines come too fast for clocks that show whole seconds: a step seems to take a second, or none."""
    whole = all(time is None or time.is_integer() for time in course.times)
    return whole and course.interval is not None and course.interval < FINE


def _slower(course: StepCourse) -> StepChange | None:
    paces = _paces(course)[FIRST_STEPS:]
    if len(paces) < FEWEST + 3:
        return None
    values = [value for _, value in paces]
    clocked = not any(beat.seconds or beat.rate for beat in course.beats)
    best: tuple[float, int] | None = None
    for cut in range(FEWEST, len(values) - 2):
        if _is_slower(values[:cut], values[cut:], COARSER if clocked and _is_coarse(course) else SLOWER):
            # the cut at which both sides are most of one kind
            usual, slow = median(values[max(0, cut - 200) : cut]), median(values[cut:])
            cost = sum(abs(v - usual) for v in values[:cut]) + sum(abs(v - slow) for v in values[cut:])
            if best is None or cost < best[0]:
                best = (cost, cut)
    if best is None:
        return None
    cut = best[1]
    first = paces[cut][0]
    usual, slow = median(values[:cut]), median(values[cut:])
    beats = course.beats[first : first + 3]
    if any(beat.seconds for beat in beats) or not any(beat.rate for beat in beats):
        told = f"steps take {slow:.3g} s from here on, {usual:.3g} s before"
    else:
        told = f"steps take {slow / usual:.2g} times as long from here on"
    return StepChange(course.beats[first].step, "slower", beats, told, slow / usual, _lost(course, first, slow / usual))


def _lost(course: StepCourse, first: int, size: float) -> float:
    """Seconds that the steps from one on took longer; infinite where the log has no times."""
    known = [time for time in course.times[first:] if time is not None]
    return (known[-1] - known[0]) * (1 - 1 / size) if len(known) > 1 else math.inf


def _is_slower(before: Sequence[float], after: Sequence[float], least: float = SLOWER) -> bool:
    """Whether steps became slower here for good: by more than they vary, or by less if many did."""
    recent = before[-200:]
    usual, slow = median(recent), median(after)
    if slow <= least * usual or after[0] - usual <= 0.5 * (slow - usual):
        return False
    spread = median([abs(v - usual) for v in recent]) * 1.4826 + 0.02 * usual
    if slow - usual > SIGMAS * spread:
        return True
    # Changing lengths make steps vary; then the mean of many decides, if it was steady before.
    half = len(recent) // 2
    drift = abs(median(recent[:half]) - median(recent[half:])) if half >= MANY else math.inf
    error = 1.25 * spread * math.sqrt(1 / len(recent) + 1 / len(after))
    return len(after) >= MANY and slow - usual > 1.5 * SIGMAS * error and slow - usual > 3 * drift


def _loss(course: StepCourse) -> StepChange | None:
    points = [(i, item.loss) for i, item in enumerate(course.beats) if item.loss is not None]
    for place, (i, value) in enumerate(points):
        if value is not None and not math.isfinite(value):
            return StepChange(
                course.beats[i].step, "loss", course.beats[i : i + 3], f"the loss is {value} from here on", 99.0
            )
        if place < FEWEST or value is None:
            continue
        before = [v for _, v in points[max(0, place - 50) : place] if v is not None and math.isfinite(v)]
        usual = median(before)
        spread = median([abs(v - usual) for v in before]) * 1.4826 + 0.01 * abs(usual)
        after = [v for _, v in points[place : place + 5] if v is not None]
        if value - usual > 8 * spread and value > 1.25 * usual and min(after) - usual > 4 * spread and len(after) >= 2:
            start, first = _start_of_rise(points, place)
            told = f"the loss rises from {usual:.4g} to {first:.4g} and stays there"
            beats = course.beats[start : start + 3]
            return StepChange(beats[0].step, "loss", beats, told, 1 + (value - usual) / (spread * 10))
    return None


def _start_of_rise(points: Sequence[tuple[int, float | None]], place: int) -> tuple[int, float]:
    """Where a loss began to rise, at a place at which it has risen: each value from there on is above the `RISING` before it."""
    values = [value if value is not None else math.inf for _, value in points]
    while place > RISING and values[place - 1] > max(values[place - 1 - RISING : place - 1]):
        place -= 1
    return points[place][0], values[place]


def is_stalled(course: StepCourse, over: float | None) -> bool:
    """Whether lines continued long after the last step, longer than ever between two steps (evaluations and checkpoints included)."""
    last = course.stopped
    known = [time for time in course.times if time is not None]
    if last is None or over is None or len(known) < FEWEST or not course.interval:
        return False
    longest = max((after - before for before, after in pairwise(known)), default=0.0)
    return over - last > max(STALLED, 20 * course.interval, 3 * longest)
