"""Against its own past: in which stage a run was, and at which step it turned.

What a step line says of itself is compared, seconds a step and loss; the distance of windows of events by dynamic time warping, as in
L4, is in bench/l4_faithful.py only. What comes again and again in the same run (evaluations, checkpoints, first steps) is not
what turned it: a step counts only if those after it stay as it is.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from kb.l4.clocks import corrected
from kb.l4.run import Beat, Run, Spot
from kb.l4.words import stage_told

FEWEST = 6  # steps before and, of a loss, after the turn
SLOWER = 1.3  # times as long a step
SIGMAS = 6.0
FIRST_STEPS = 3  # slow in every run
STAGES = ("launch", "init", "data_load", "checkpoint_load", "iterating", "evaluating", "saving")


@dataclass(frozen=True, slots=True)
class Change:
    """The step from which on a run was another: the first lines that show it, and how, in words. `why` is "slower", "loss" or "still"."""

    step: int
    why: str
    beats: tuple[Beat, ...]
    told: str
    size: float


@dataclass(frozen=True, slots=True)
class Course:
    """The steps of the job in order, each told by one line. `interval`: seconds between such lines; `stride`: steps between them."""

    beats: tuple[Beat, ...]
    times: tuple[float | None, ...]
    interval: float | None
    stride: int

    @property
    def last(self) -> Beat | None:
        """The last step line."""
        return self.beats[-1] if self.beats else None

    @property
    def stopped(self) -> float | None:
        """When the last step line came."""
        known = [one for one in self.times if one is not None]
        return known[-1] if known else None


def course_of(run: Run, off: Mapping[str, float]) -> Course:
    """The job's steps: those of the source that tells most of them, as far as it goes, then the furthest."""
    told: dict[str, list[Beat]] = {}
    for beat in run.beats:
        if not beat.held_out:
            told.setdefault(beat.spot.source, []).append(beat)
    if not told:
        return Course((), (), None, 1)
    rich = {name: sum(b.seconds is not None or b.loss is not None for b in beats) for name, beats in told.items()}
    best = min(told, key=lambda name: (-min(1, rich[name]), -max(b.step for b in told[name]), -len(told[name]), name))
    beats = _rising(sorted(told[best], key=lambda one: one.spot.offset))
    times = tuple(corrected(one.spot, off) for one in beats)
    gaps = [b - a for a, b in pairwise(times) if a is not None and b is not None and b >= a]
    strides = Counter(b.step - a.step for a, b in pairwise(beats) if b.step > a.step)
    return Course(beats, times, median(gaps) if gaps else None, strides.most_common(1)[0][0] if strides else 1)


def _rising(beats: Sequence[Beat]) -> tuple[Beat, ...]:
    """One line of each step, the richest; a step that is lower than the one before begins anew."""
    kept: list[Beat] = []
    for beat in beats:
        if kept and beat.step == kept[-1].step:
            if kept[-1].seconds is None and kept[-1].loss is None:
                kept[-1] = beat
        else:
            kept.append(beat)
    return tuple(kept)


def step_at(course: Course, time: float | None) -> int | None:
    """The step that was being done at a time, as far as the lines tell."""
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


def changes(course: Course) -> tuple[Change, ...]:
    """Where the job's steps turned for good: became slower, or their loss went off."""
    found = [one for one in (_slower(course), _loss(course)) if one is not None]
    return tuple(sorted(found, key=lambda one: (-one.size, one.step)))


def _paces(course: Course) -> list[tuple[int, float]]:
    """Seconds a step by index of the line: as it says, else by the clock."""
    said = [(i, one.seconds) for i, one in enumerate(course.beats) if one.seconds]
    if len(said) * 2 > len(course.beats):
        return [(i, value) for i, value in said if value is not None]
    paces = []
    for i in range(1, len(course.beats)):
        before, now = course.times[i - 1], course.times[i]
        steps = course.beats[i].step - course.beats[i - 1].step
        if before is not None and now is not None and now > before and steps > 0:
            paces.append((i, (now - before) / steps))
    return paces


def _slower(course: Course) -> Change | None:
    paces = _paces(course)[FIRST_STEPS:]
    if len(paces) < FEWEST + 3:
        return None
    values = [value for _, value in paces]
    best: tuple[float, int] | None = None
    for cut in range(FEWEST, len(values) - 2):
        before, after = values[:cut], values[cut:]
        usual = median(before[-200:])
        spread = median([abs(v - usual) for v in before[-200:]]) * 1.4826 + 0.02 * usual
        slow = median(after)
        if slow > SLOWER * usual and slow - usual > SIGMAS * spread and values[cut] - usual > 0.5 * (slow - usual):
            # the cut at which both sides are most of one kind
            cost = sum(abs(v - usual) for v in before) + sum(abs(v - slow) for v in after)
            if best is None or cost < best[0]:
                best = (cost, cut)
    if best is None:
        return None
    cut = best[1]
    first = paces[cut][0]
    usual, slow = median(values[:cut]), median(values[cut:])
    told = f"steps take {slow:.3g} s from here on, {usual:.3g} s before"
    return Change(course.beats[first].step, "slower", course.beats[first : first + 3], told, slow / usual)


def _loss(course: Course) -> Change | None:
    points = [(i, one.loss) for i, one in enumerate(course.beats) if one.loss is not None]
    for place, (i, value) in enumerate(points):
        if value is not None and not math.isfinite(value):
            return Change(
                course.beats[i].step, "loss", course.beats[i : i + 3], f"the loss is {value} from here on", 99.0
            )
        if place < FEWEST or value is None:
            continue
        before = [v for _, v in points[max(0, place - 50) : place] if v is not None and math.isfinite(v)]
        usual = median(before)
        spread = median([abs(v - usual) for v in before]) * 1.4826 + 0.01 * abs(usual)
        after = [v for _, v in points[place : place + 5] if v is not None]
        if value - usual > 8 * spread and value > 1.25 * usual and min(after) - usual > 4 * spread and len(after) >= 2:
            told = f"the loss goes from {usual:.4g} to {value:.4g} and stays off"
            return Change(
                course.beats[i].step, "loss", course.beats[i : i + 3], told, 1 + (value - usual) / (spread * 10)
            )
    return None


def stage_at(run: Run, spot: Spot | None, course: Course, off: Mapping[str, float], text: str = "") -> str | None:
    """The stage in which a line stands: what the line itself says, else the last mark of all sources before it.

    A held-out loss ends an evaluation. Without a step, a stage is taken from the words where no mark tells it.
    """
    when = corrected(spot, off) if spot else None
    marks = [(corrected(one.spot, off), one.stage, one.spot) for one in run.turns]
    marks += [(corrected(one.spot, off), "iterating", one.spot) for one in run.beats]
    marks = [one for one in marks if one[1] != "teardown"]
    timed = [(t, STAGES.index(s), s) for t, s, _ in marks if t is not None and (when is None or t <= when + 1.0)]
    last = max(timed)[2] if timed else None
    if last is None and spot is not None:
        own = [(at.offset, s) for _, s, at in marks if at.source == spot.source and at.offset < spot.offset]
        last = max(own)[1] if own else None
    if course.beats:
        told = stage_told(text, ("saving", "evaluating"))
        return told or last or "iterating"
    told = stage_told(text, ("checkpoint_load", "data_load", "init", "launch"))
    if last is None or (told is not None and STAGES.index(told) >= STAGES.index(last)):
        return told or last or "launch"
    return last
