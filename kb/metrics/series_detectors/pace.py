"""Detectors of slowdowns."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from statistics import median

from kb.metrics.series_detectors.finding import SeriesFinding, step_label
from kb.model import ProgressPoint

BEFORE_COLLAPSE = 10  # points before a collapse, for its usual pace
USUAL = 0.9  # share of the earlier steps that take no longer
AS_SLOW = 0.9  # share of an earlier rate from which on a later one is much the same
EXCERPT, STARTED = 20, 100  # points at most, and their first step at least, of an excerpt from the middle of a run
BEFORE, AFTER = 8, 5  # points before and after a change in a longer log
BARS_BEFORE, BARS_AFTER = 5, 4  # the same for the ends of whole bars
SKIPPED = 30  # times as many steps as between two drawings of a bar
RECOVERY = 4  # points that show a recovery
COLLAPSED, COLLAPSED_SHARE = 8, 0.1  # points after it: minimum number, and minimum share of all points


def slow_down(points: Sequence[ProgressPoint], params: Mapping[str, float]) -> SeriesFinding | None:
    """Detect steps that take longer from some point on until the end of the log."""
    timed = _of_one_form(_bar_ends([p for p in points if p.seconds and math.isfinite(p.seconds)]))
    if not timed:
        return _rate_falls(points, params) or _collapses(points, params)
    share = params.get("share", 0.7)
    keep = int(params.get("points", 3))
    if len(timed) < 2 * keep:
        return None
    values = [p.seconds or 0.0 for p in timed]
    before, lasts = _least(timed, keep)
    for index in range(before, len(values) - lasts + 1):
        level = median(values[max(0, index - 20) : index])
        if level >= share * values[index]:
            continue
        after = values[index:]
        usual = max(level / share, _usual(values[:index]))
        slow = sum(usual < value for value in after)
        if slow >= max(keep, 0.9 * len(after)) and not _rate_holds(timed, index, 0.85):
            return _slower(timed[index:], level, median(after))
    return None


def _least(timed: Sequence[ProgressPoint], excerpt: int) -> tuple[int, int]:
    """Return how many points a change needs before and after it: few in an excerpt from the middle of a run.

    Whoever quotes a few lines does so for what they show; a run that has just begun is still warming up. A whole bar
    is the mean of many steps.
    """
    first = timed[0].step or 0
    if all(p.format in BARS and p.step == p.total for p in timed):
        return BARS_BEFORE, BARS_AFTER
    if len(timed) <= EXCERPT and first >= STARTED:
        return excerpt, excerpt
    return BEFORE, AFTER


def _usual(before: Sequence[float]) -> float:
    """Return a time that most earlier steps did not exceed: steps as slow as some before them are no change."""
    return sorted(before)[int(USUAL * (len(before) - 1))]


def _rate_holds(timed: Sequence[ProgressPoint], index: int, share: float) -> bool:
    """Whether throughput is unchanged from some point on: then longer steps do more work."""
    before = [p.throughput for p in timed[max(0, index - 20) : index] if p.throughput]
    after = [p.throughput for p in timed[index:] if p.throughput]
    if len(before) < 2 or len(after) < 2:
        return False
    return median(after) >= share * median(before)


def _rate_falls(points: Sequence[ProgressPoint], params: Mapping[str, float]) -> SeriesFinding | None:
    """Detect a logged rate that falls below all its earlier values and stays there, for logs without step times.

    The first point is skipped. A save halves the rate for a step or two, so two points at the end count only if the
    second is slower still.
    """
    rated = _each_once([p for p in points if p.throughput and math.isfinite(p.throughput)])[1:]
    values = [p.throughput or 0.0 for p in rated]
    least = list(accumulate(reversed(values), max))[::-1]  # the best rate after each point
    for index in range(3, len(values) - 1):
        before = values[max(0, index - 20) : index]
        level, after = median(before), len(values) - index
        collapsing = after == 2 and least[index] < 0.55 * level and values[-1] < 0.75 * values[-2] and index >= 4
        share = params.get("share", 0.7) if index >= 5 else 0.55
        swings = after >= 20 and least[index] < 0.85 * level and median(values[index:]) < 0.7 * level
        slow = swings or (after >= 3 and least[index] < share * level)
        lowest = (0.9 if swings else 0.8) * min(before)
        falls = (collapsing or slow) and min(before) > 0.8 * level and least[index] < lowest
        if falls and not _was_as_slow(values, index):
            return _fallen(rated[index:], level, median(values[index:]))
    return None


def _was_as_slow(rates: Sequence[float], index: int) -> bool:
    """Whether a tenth of the earlier rates or more are as low as those from some point on: a fast spell has ended."""
    before = sorted(rates[:index])
    return median(rates[index:]) >= AS_SLOW * before[int((1 - USUAL) * (len(before) - 1))]


def _recovers(values: Sequence[float]) -> bool:
    """Whether a moving average climbs back from its lowest value, as after a pause for an evaluation or a save."""
    later = values[values.index(min(values)) :]
    rises = sum(after >= before for before, after in pairwise(later))
    return len(later) >= RECOVERY and later[-1] >= 2.0 * later[0] and rises >= 0.8 * (len(later) - 1)


def _collapses(points: Sequence[ProgressPoint], params: Mapping[str, float]) -> SeriesFinding | None:
    """Detect a pace that falls to a fraction at one point and never recovers, however uneven it was before.

    Here all points of one bar count: their rate is a moving average over the last steps, which recovers after a pause.
    """
    rated: Sequence[ProgressPoint] = _each_once([p for p in points if p.throughput and math.isfinite(p.throughput)])
    values = [p.throughput or 0.0 for p in rated]
    if not rated:
        bars = [p for p in points if p.format in BARS and p.seconds and math.isfinite(p.seconds)]
        longest = Counter(p.total for p in bars).most_common(1)
        # a bar that is full shows the mean over all its steps, with the pauses between them
        rated = bars = [p for p in bars if p.total == longest[0][0] and p.step != p.total]
        values = [1.0 / (p.seconds or 1.0) for p in bars]
        if any((later.step or 0) < (item.step or 0) for item, later in pairwise(rated)):
            return None  # restarted bars
        if bars and _passes_over(points, bars[0].total):
            return None
    most = list(accumulate(reversed(values), max))[::-1]
    fewest = max(COLLAPSED, COLLAPSED_SHARE * len(values))
    for index in range(BEFORE_COLLAPSE, len(values) - COLLAPSED):
        before = values[max(0, index - 20) : index]
        level = median(before)
        fallen = most[index] < params.get("collapse", 0.4) * level and most[index] < min(before[-5:])
        lasts = fallen and len(values) - index >= fewest and not _recovers(values[index:])
        if lasts and not _was_as_slow(values, index):
            return _fallen(rated[index:], level, median(values[index:]))
    return None


def _passes_over(points: Sequence[ProgressPoint], total: int | None) -> bool:
    """Whether a bar passes at once over the steps that a resumed run made before; its pace is not that of steps then."""
    steps = [p.step or 0 for p in points if p.format in BARS and p.total == total]
    moves = [later - step for step, later in pairwise(steps) if later > step]
    return bool(moves) and max(moves[:3]) > SKIPPED * median(moves)


def _each_once(points: Sequence[ProgressPoint]) -> list[ProgressPoint]:
    """Drop repeats of a step that prints one line per metric."""
    kept: list[ProgressPoint] = []
    for point in points:
        last = kept[-1] if kept else None
        if last is None or point.step is None or (point.step, point.throughput) != (last.step, last.throughput):
            kept.append(point)
    return kept


def _fallen(slow: Sequence[ProgressPoint], level: float, now: float) -> SeriesFinding:
    point = slow[0]
    text = f"the rate falls from {level:.4g} to {now:.4g} per second from step {step_label(point)} on"
    pace = f"The rate fell from {level:.4g} to {now:.4g} per second"
    captures = (("level", f"{level:.4g}"), ("value", f"{now:.4g}"), ("pace", pace))
    return SeriesFinding(point, text, captures, tuple(slow[-2:]))


def side_rate_falls(points: Sequence[ProgressPoint], params: Mapping[str, float]) -> SeriesFinding | None:
    """Return the same for rates on separate lines."""
    if any(p.seconds or p.throughput for p in points if not p.validation):
        return None
    return _rate_falls([p for p in points if p.format == "rate"], params)


def slow_step(points: Sequence[ProgressPoint], params: Mapping[str, float]) -> SeriesFinding | None:
    """Detect very even steps that become a few percent slower and stay so, as with one slow node among many."""
    least_seconds = params.get("least_seconds", 2.0)
    timed = _bar_ends([p for p in points if p.seconds and math.isfinite(p.seconds) and p.seconds >= least_seconds])
    if len(timed) < 4:
        return None
    values = [p.seconds or 0.0 for p in timed]
    fewest, lasts = _least(timed, 2)
    least = list(accumulate(reversed(values), min))[::-1]  # from each point on, computed once
    for index in range(fewest, len(values) - lasts + 1):
        before = values[max(0, index - 20) : index]
        level = median(before)
        spread = max(before) - min(before)
        even = spread < 0.015 * level
        least_rise = max(0.035 * level, 3 * spread)
        risen = even and least[index] - level > least_rise
        if risen and least[index] - _usual(values[:index]) > least_rise:  # which sorts, so it is asked last
            now = median(values[index:])
            if now < 1.5 * level and not _rate_holds(timed, index, 0.99):
                return _slower(timed[index:], level, now)
    return None


def _slower(slow: Sequence[ProgressPoint], level: float, now: float) -> SeriesFinding:
    point = slow[0]
    text = f"a step takes {now:.4g} s from step {step_label(point)} on, {level:.4g} s before"
    return SeriesFinding(
        point,
        text,
        (
            ("level", f"{level:.4g}"),
            ("value", f"{now:.4g}"),
            ("pace", f"A step takes {now:.4g} s instead of {level:.4g} s"),
        ),
        tuple(slow[1:2]),
    )


BARS = ("tqdm", "lightning", "keras")


def _bar_ends(points: Sequence[ProgressPoint]) -> list[ProgressPoint]:
    """Keep only the last point of each progress bar, whose rate is an average since its start; keep all other points.

    Bars of another length do other work, so only those of the most frequent length are compared. A bar interrupted by
    others yields its pieces; restarted bars (other epochs, other trainers in the same file) count once each.
    """
    ends = []
    for index, point in enumerate(points):
        follower = points[index + 1] if index + 1 < len(points) else None
        inside = (
            point.format in BARS
            and follower is not None
            and (follower.step or 0) >= (point.step or 0)
            and follower.total == point.total
        )
        if not inside:
            ends.append(point)
    if len(ends) <= 3:
        return list(points) if points and points[0].format not in BARS else []
    totals = Counter(p.total for p in ends if p.format in BARS)
    common = totals.most_common(1)[0][0] if totals else None
    return _once_a_bar([p for p in ends if p.format not in BARS or p.total == common])


def _once_a_bar(ends: list[ProgressPoint]) -> list[ProgressPoint]:
    """Keep only the last piece of each restarted bar; lines and the pieces of a single bar stay."""
    bars = [p for p in ends if p.format in BARS]
    last = [item for item, follower in pairwise(bars) if (follower.step or 0) < (item.step or 0)]
    if not last:
        return ends
    kept = {id(p) for p in [*last, bars[-1]]}
    return [p for p in ends if p.format not in BARS or id(p) in kept]


def _of_one_form(points: list[ProgressPoint]) -> list[ProgressPoint]:
    """Keep the points of the most frequent format; bars only if there are no lines: else they time evaluations."""
    forms = Counter(p.format for p in points)
    lines = [(count, name) for name, count in forms.items() if name not in BARS and count > 3]
    chosen = max(lines, default=(0, ""))[1]
    return [p for p in points if p.format == chosen] if lines else points
