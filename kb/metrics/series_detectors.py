"""Detectors over the series of one stream: each gives the points at which something is wrong with the numbers.

A detector never speaks on what a healthy run shows: first steps, evaluation and checkpoint steps, the noise of small
batches. All take training points in order of offset.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise, takewhile
from statistics import median

from kb.model import RESIZED, ProgressPoint, Structure

MOST_RUNS = 3  # runs told apart in one file by how many steps they plan


@dataclass(frozen=True, slots=True)
class Found:
    """A point at which a series goes wrong, in words, the numbers for a rule's texts, and further points worth showing."""

    point: ProgressPoint
    text: str
    captures: tuple[tuple[str, str], ...] = ()
    more: tuple[ProgressPoint, ...] = ()


def detect(name: str, points: Sequence[ProgressPoint], params: Mapping[str, float]) -> tuple[Found, ...]:
    """Run one detector over the points of a stream.

    Lines that stand beside the iteration lines (the falls of a loss scale, rates, memory in use) are looked at where the
    iteration lines themselves show nothing.
    """
    training = [p for p in points if not p.validation]
    parts = alike(points, training) if name in COMPARING else [training]
    found = next((one for one in (DETECTORS[name](part, params) for part in parts) if one), None)
    if found is None and name in BESIDE:
        found = BESIDE[name](points, params)
    return (found,) if found else ()


def alike(points: Sequence[ProgressPoint], training: list[ProgressPoint]) -> list[list[ProgressPoint]]:
    """The training points in groups that may be compared with one another.

    Lines that plan another number of steps are of another run in the same file; from a line on that says that batches or
    sequences have another size, steps do other work. Where totals differ all the time they are the lengths of epochs.
    """
    totals = dict.fromkeys(p.total for p in training if p.total is not None and p.format not in BARS)
    runs = [training]
    if 2 <= len(totals) <= MOST_RUNS:
        runs = [[p for p in training if p.total in (None, total) or p.format in BARS] for total in totals]
    resized = [p.offset for p in points if p.format == RESIZED]
    if not resized:
        return runs
    parts: list[list[ProgressPoint]] = []
    for run in runs:
        pieces: dict[int, list[ProgressPoint]] = {}
        for point in run:
            pieces.setdefault(bisect_right(resized, point.offset), []).append(point)
        parts += pieces.values()
    return parts


def _loss_not_finite(points: Sequence[ProgressPoint], params: Mapping[str, float]) -> Found | None:
    """The loss is nan or inf, and not for one passing step only; or the gradient norm is, for many steps on end."""
    losses = [p for p in points if p.loss is not None]
    if _finite_again(losses):
        losses = []
    run = 0
    for index, point in enumerate(losses):
        if math.isfinite(point.loss or 0.0):
            run = 0
            continue
        run += 1
        start = losses[index - run + 1]
        if run >= params.get("steps", 2) or index == len(losses) - 1:
            text = f"loss is {start.loss} at step {_step(start)}"
            more = () if math.isnan(start.loss or 0.0) else _later_odd(losses[index - run + 2 :])
            return Found(start, text, (("value", str(start.loss)),), more)
    return _gradient_not_finite(points, params)


def _finite_again(losses: Sequence[ProgressPoint]) -> bool:
    """Whether the losses at the end are finite for long: a try that was begun anew, or a few bad batches, not a broken run."""
    calm = takewhile(lambda p: math.isfinite(p.loss or 0.0) and p.loss != 0.0, reversed(losses))
    return sum(1 for _ in islice(calm, 100)) == 100


def _later_odd(losses: Sequence[ProgressPoint]) -> tuple[ProgressPoint, ...]:
    """The first nan of what follows, and its last point where that is not finite either."""
    first = next((p for p in losses if math.isnan(p.loss or 0.0)), None)
    last = losses[-1] if losses and not math.isfinite(losses[-1].loss or 0.0) else None
    return tuple(dict.fromkeys(p for p in (first, last) if p is not None))


def _gradient_not_finite(points: Sequence[ProgressPoint], params: Mapping[str, float]) -> Found | None:
    """The gradient norm is nan or inf for many steps on end, or is nan where the log ends, well after the first steps.

    A single infinite norm is how fp16 training finds its loss scale.
    """
    run = 0
    for index, point in enumerate(points):
        odd = point.grad_norm is not None and not math.isfinite(point.grad_norm)
        run = run + 1 if odd else 0
        start = points[index - run + 1] if run else point
        late = index - run >= 4 or (start.step or 0) >= params.get("late_step", 200)
        ends = index == len(points) - 1 and run and math.isnan(point.grad_norm or 0.0) and late
        dead = run >= 3 and all(p.loss == 0.0 for p in points[index - 1 : index + 1])
        dead = dead or (
            run >= 2 and index == len(points) - 1 and point.loss == 0.0 and math.isnan(point.grad_norm or 0.0)
        )
        if run >= params.get("gradient_steps", 8) or ends or dead:
            text = f"gradient norm is {start.grad_norm} from step {_step(start)} on"
            return Found(start, text, (("value", str(start.grad_norm)),))
    return None


def _loss_spike(points: Sequence[ProgressPoint], params: Mapping[str, float]) -> Found | None:
    """The loss leaves its level upwards by far more than its noise, and does not come back at once.

    The first steps are left out, since losses jump there; so is a loss that ends as nan, which says more.
    """
    losses = [p for p in points if p.loss is not None]
    if any(not math.isfinite(p.loss or 0.0) for p in losses):
        return None
    for index in range(1, len(losses)):
        point = losses[index]
        if point.step is not None and point.step < params.get("first_step", 100):
            continue
        before = [p.loss or 0.0 for p in losses[max(0, index - 20) : index]]
        least = 1 if point.format.startswith("megatron") else 8  # large batches: a few points tell the level
        alike = [p.loss or 0.0 for p in losses[max(0, index - 20) : index] if p.format == point.format]
        after = [p.loss or 0.0 for p in losses[index + 1 :]]
        leaps = len(alike) >= 2 and _leaps(point.loss or 0.0, alike, params)
        usual = 2 * len(alike) >= len(before)  # not a sum over an epoch among the losses of steps
        spikes = usual and len(before) >= least and _spikes(point.loss or 0.0, before, after[:3], params)
        if (leaps or spikes) and not _recovers(point.loss or 0.0, before, after):
            return _spike(losses, index, median(before))
    return _turns(losses, params)


def _recovers(here: float, before: Sequence[float], after: Sequence[float]) -> bool:
    """Whether the loss is back at its level within a few records and stays there for longer than it was away."""
    level = median(before)
    noise = 1.4826 * median(abs(value - level) for value in before)
    back = level + max(3 * noise, 0.05 * abs(level), min(0.15 * (here - level), 0.1 * abs(level)))
    away = next((index for index, value in enumerate(after[:20]) if value <= back), None)
    if away is None:
        return False
    calm = after[away : away + 100]
    short = away <= 2 and len(calm) >= 2
    return (short or len(calm) >= max(10, 2 * away)) and sum(value > back for value in calm) <= 0.1 * len(calm)


def _turns(losses: Sequence[ProgressPoint], params: Mapping[str, float]) -> Found | None:
    """In a log of few, widely spaced records: the loss falls without a break, then rises without one, to many times its low.

    Losses as noisy as those of single batches do not go in such a line.
    """
    values = [p.loss or 0.0 for p in losses]
    if not 7 <= len(values) <= 40 or any(p.step is None for p in losses):
        return None
    low = min(range(len(values)), key=values.__getitem__)
    falls = low >= 3 and all(later < earlier for earlier, later in pairwise(values[: low + 1]))
    rises = len(values) - low > 3 and all(later > earlier for earlier, later in pairwise(values[low:]))
    if (
        not (falls and rises)
        or values[low] <= 0
        or values[-1] < max(3 * values[low], values[low] + params.get("rise", 1.0))
    ):
        return None
    return _spike(losses, low + 1, values[low])


def _leaps(here: float, before: Sequence[float], params: Mapping[str, float]) -> bool:
    """Whether the loss is a hundred times all that it was lately, and large: then one step is enough."""
    return here >= params.get("leap", 100.0) * max(1.0, *(abs(value) for value in before))


def _spikes(here: float, before: Sequence[float], after: Sequence[float], params: Mapping[str, float]) -> bool:
    level = median(before)
    noise = 1.4826 * median(abs(value - level) for value in before)
    width = max(noise, (0.03 if len(before) >= 5 else 0.05) * abs(level))
    if here - level < params.get("deviations", 10.0) * width or here < level + params.get("rise", 1.0):
        return False
    if not after:
        return len(before) >= 5
    return 2 * sum(value > level + max(3 * noise, 0.05 * abs(level)) for value in after) >= len(after)


def _spike(losses: Sequence[ProgressPoint], index: int, level: float) -> Found:
    point = losses[index]
    peak = max(losses[index : index + 20], key=lambda p: p.loss or 0.0)
    text = f"loss rose from {level:.4g} to {peak.loss:.4g} from step {_step(point)} on"
    onset = index
    while onset > max(1, index - 10) and (losses[onset - 1].loss or 0.0) > 1.05 * abs(level):
        onset -= 1
    more = tuple(dict.fromkeys(p for p in (losses[onset], peak) if p is not point))
    return Found(point, text, (("level", f"{level:.4g}"), ("value", f"{peak.loss:.4g}")), more)


def _slow_down(points: Sequence[ProgressPoint], params: Mapping[str, float]) -> Found | None:
    """Steps take longer from some point on, to the end of what is seen."""
    timed = _of_one_form(_bar_ends([p for p in points if p.seconds and math.isfinite(p.seconds)]))
    if not timed:
        return _rate_falls(points, params)
    share = params.get("share", 0.7)
    keep = int(params.get("points", 3))
    if len(timed) < 2 * keep:
        return None
    values = [p.seconds or 0.0 for p in timed]
    for index in range(keep, len(values) - keep + 1):
        level = median(values[max(0, index - 20) : index])
        if level >= share * values[index]:
            continue
        after = values[index:]
        slow = sum(level < share * value for value in after)
        if slow >= max(keep, 0.9 * len(after)) and not _rate_holds(timed, index, 0.85):
            return _slower(timed[index:], level, median(after))
    return None


def _rate_holds(timed: Sequence[ProgressPoint], index: int, share: float) -> bool:
    """Whether as much is done a second from some point on as before it: then longer steps do more work."""
    before = [p.throughput for p in timed[max(0, index - 20) : index] if p.throughput]
    after = [p.throughput for p in timed[index:] if p.throughput]
    if len(before) < 2 or len(after) < 2:
        return False
    return median(after) >= share * median(before)


def _rate_falls(points: Sequence[ProgressPoint], params: Mapping[str, float]) -> Found | None:
    """Where only rates are logged: the rate falls, for good, below anything it was before.

    The first point is no measure. Rates halve for a step or two where something is saved, so two points at the end count
    only where the second is slower still.
    """
    rated = _each_once([p for p in points if p.throughput and math.isfinite(p.throughput)])[1:]
    values = [p.throughput or 0.0 for p in rated]
    least = list(accumulate(reversed(values), max))[::-1]  # the best rate from each point on
    for index in range(3, len(values) - 1):
        before = values[max(0, index - 20) : index]
        level, after = median(before), len(values) - index
        collapsing = after == 2 and least[index] < 0.55 * level and values[-1] < 0.75 * values[-2] and index >= 4
        share = params.get("share", 0.7) if index >= 5 else 0.55
        swings = after >= 20 and least[index] < 0.85 * level and median(values[index:]) < 0.7 * level
        slow = swings or (after >= 3 and least[index] < share * level)
        lowest = (0.9 if swings else 0.8) * min(before)
        if (collapsing or slow) and min(before) > 0.8 * level and least[index] < lowest:
            return _fallen(rated[index:], level, median(values[index:]))
    return None


def _each_once(points: Sequence[ProgressPoint]) -> list[ProgressPoint]:
    """Without the repeats of a step that prints one line for each of its metrics."""
    kept: list[ProgressPoint] = []
    for point in points:
        last = kept[-1] if kept else None
        if last is None or point.step is None or (point.step, point.throughput) != (last.step, last.throughput):
            kept.append(point)
    return kept


def _fallen(slow: Sequence[ProgressPoint], level: float, now: float) -> Found:
    point = slow[0]
    text = f"the rate falls from {level:.4g} to {now:.4g} per second from step {_step(point)} on"
    captures = (("level", f"{level:.4g}"), ("value", f"{now:.4g}"), ("percent", f"{100 * (level / now - 1):.0f}"))
    return Found(point, text, captures, tuple(slow[-2:]))


def _side_rate_falls(points: Sequence[ProgressPoint], params: Mapping[str, float]) -> Found | None:
    """The same for rates on lines of their own."""
    if any(p.seconds or p.throughput for p in points if not p.validation):
        return None
    return _rate_falls([p for p in points if p.format == "rate"], params)


def _slow_step(points: Sequence[ProgressPoint], params: Mapping[str, float]) -> Found | None:
    """Very even steps become a few percent slower and stay so: one slow node of many does that."""
    least_seconds = params.get("least_seconds", 2.0)
    timed = _bar_ends([p for p in points if p.seconds and math.isfinite(p.seconds) and p.seconds >= least_seconds])
    if len(timed) < 4:
        return None
    values = [p.seconds or 0.0 for p in timed]
    least = list(accumulate(reversed(values), min))[::-1]  # from each point on: looked up, not sought again each time
    for index in range(2, len(values) - 1):
        before = values[max(0, index - 20) : index]
        level = median(before)
        spread = max(before) - min(before)
        even = spread < 0.015 * level
        if even and least[index] - level > max(0.035 * level, 3 * spread):
            now = median(values[index:])
            if now < 1.5 * level and not _rate_holds(timed, index, 0.99):
                return _slower(timed[index:], level, now)
    return None


def _slower(slow: Sequence[ProgressPoint], level: float, now: float) -> Found:
    point = slow[0]
    text = f"a step takes {now:.4g} s from step {_step(point)} on, {level:.4g} s before"
    return Found(
        point,
        text,
        (("level", f"{level:.4g}"), ("value", f"{now:.4g}"), ("percent", f"{100 * (now / level - 1):.0f}")),
        tuple(slow[1:2]),
    )


BARS = ("tqdm", "lightning", "keras")


def _bar_ends(points: Sequence[ProgressPoint]) -> list[ProgressPoint]:
    """Of progress bars, whose rate is an average since the bar began, only each bar's last point; other points all.

    Bars of another length do other work: only those of the commonest length are compared. A bar that others break into
    pieces gives its pieces; where bars begin anew (other epochs, other trainers in one file), each counts once.
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
    """Where bars begin anew, only the last piece of each; lines, and the pieces of a single bar, as they are."""
    bars = [p for p in ends if p.format in BARS]
    last = [one for one, follower in pairwise(bars) if (follower.step or 0) < (one.step or 0)]
    if not last:
        return ends
    kept = {id(p) for p in [*last, bars[-1]]}
    return [p for p in ends if p.format not in BARS or id(p) in kept]


def _of_one_form(points: list[ProgressPoint]) -> list[ProgressPoint]:
    """Only the points of the commonest form; bars only where there are no lines: beside lines they time evaluations."""
    forms = Counter(p.format for p in points)
    lines = [(count, name) for name, count in forms.items() if name not in BARS and count > 3]
    chosen = max(lines, default=(0, ""))[1]
    return [p for p in points if p.format == chosen] if lines else points


def _memory_growth(points: Sequence[ProgressPoint], params: Mapping[str, float]) -> Found | None:
    """Memory rises from step to step without ever being released."""
    known = [p for p in points if p.memory is not None and p.step is not None]
    if len(known) < 20:
        return None
    tail = known[len(known) // 4 :]
    values = [p.memory or 0.0 for p in tail]
    steps = (tail[-1].step or 0) - (tail[0].step or 0)
    half = len(values) // 2
    if min(values[half:]) < median(values[:half]):  # a sawtooth: what rose was released
        return None
    falls = sum(later < earlier for earlier, later in pairwise(values))
    rate = (values[-1] - values[0]) / steps if steps > 0 else 0.0
    if falls > 0.1 * len(values) or rate < params.get("bytes_a_step", 50e6) or values[-1] < 1.2 * values[0]:
        return None
    text = f"memory grows by {rate / 1e6:.0f} MB a step, from {values[0] / 1e9:.1f} to {values[-1] / 1e9:.1f} GB"
    return Found(tail[-1], text, (("rate", f"{rate / 1e6:.0f}"),))


def _use_grows(points: Sequence[ProgressPoint], _params: Mapping[str, float]) -> Found | None:
    """What lines beside the iteration lines say of memory in use grows in a straight line while the run trains."""
    series: dict[tuple[str, int | None], list[ProgressPoint]] = {}
    for point in points:
        if point.memory is not None and point.format.startswith("used "):
            series.setdefault((point.format, point.rank), []).append(point)
    steps = [p.offset for p in points if not p.validation]
    for known in series.values():
        values = [p.memory or 0.0 for p in known]
        during = sum(known[0].offset < offset <= known[-1].offset for offset in steps)
        if (during >= 5 and _straight(values)) or (not steps and _climbs(values)):
            text = f"memory in use grows from {values[0]:.4g} to {values[-1]:.4g} over {len(values)} lines"
            return Found(known[-1], text, (("rate", f"{(values[-1] - values[0]) / len(values):.3g}"),), (known[0],))
    return None


def _straight(values: Sequence[float], least: int = 6) -> bool:
    """Whether the values rise evenly to their end: a filling cache would level off."""
    if len(values) < least or values[-1] < 1.1 * values[0] or values[0] <= 0:
        return False
    rise = (values[-1] - values[0]) / (len(values) - 1)
    return all(abs(value - values[0] - rise * at) <= 0.12 * (values[-1] - values[0]) for at, value in enumerate(values))


def _climbs(values: Sequence[float]) -> bool:
    """Whether each of a few samples, taken by a person or a watcher, is well above the one before, the last too."""
    if len(values) < 4 or len(values) > 50 or values[-1] < 1.5 * max(values[0], 1.0):
        return False
    rises = [later - earlier for earlier, later in pairwise(values)]
    return min(rises) > 0 and rises[-1] >= 0.3 * sum(rises) / len(rises)


def _lr_stuck(points: Sequence[ProgressPoint], params: Mapping[str, float]) -> Found | None:
    """The learning rate is zero for many steps while the loss is still being logged."""
    known = [p for p in points if p.learning_rate is not None]
    least = int(params.get("steps", 30))
    if len(known) < least + 5:
        return None
    zero = [p for p in known[5:] if p.learning_rate == 0.0]
    if len(zero) < least or zero[-1].offset != known[-1].offset or len(zero) < 0.9 * (len(known) - 5):
        return None
    return Found(zero[0], f"the learning rate is 0 from step {_step(zero[0])} on")


def _lr_off_schedule(points: Sequence[ProgressPoint], params: Mapping[str, float]) -> Found | None:
    """The learning rate warms up again after a resume, runs out or climbs long before the end, or differs after a resume."""
    known = [p for p in points if p.learning_rate is not None and p.step is not None]
    if len(known) < 8 or not all(math.isfinite(p.learning_rate or 0.0) for p in known):
        return None
    starts = [0, *(at for at in range(1, len(known)) if (known[at].step or 0) <= (known[at - 1].step or 0))]
    ends = [known[at - 1] for at in (*starts[1:], len(known))]
    ended = [p.step for p in ends if p.step is not None and p.total is not None and p.step >= 0.95 * p.total]
    if len(starts) > MOST_RUNS or len(ended) > 1 or any(p.epoch is not None and p.total is not None for p in known):
        return None  # steps that are counted anew in every epoch
    for at, end in pairwise([*starts, len(known)]):
        found = _warms_up_again(known[at:end], params) or _other_than_before(known[:at], known[at:end], params)
        if found is not None:
            return found
    return _runs_out(known, params) or _climbs_again(known[starts[-1] :])


def _deep(part: Sequence[ProgressPoint], params: Mapping[str, float]) -> bool:
    """Whether a piece of the log begins far inside a run: not at the start of an epoch or of a run."""
    if len(part) < 8:
        return False
    first, gap = part[0].step or 0, (part[1].step or 0) - (part[0].step or 0)
    return gap > 0 and first >= max(params.get("first_step", 1000), 5 * gap)


def _warms_up_again(part: Sequence[ProgressPoint], params: Mapping[str, float]) -> Found | None:
    """A straight rise from zero at the step where the log begins, far inside the run."""
    if not _deep(part, params):
        return None
    first, last = part[0], part[7]
    low, high = first.learning_rate or 0.0, last.learning_rate or 0.0
    begin, ahead = first.step or 0, (last.step or 0) - (first.step or 0)
    if not 0.0 <= low < 0.5 * high or ahead <= 0:
        return None
    slope = (high - low) / ahead
    zero = begin - low / slope
    straight = all(
        abs((p.learning_rate or 0.0) - low - slope * ((p.step or 0) - begin)) <= 0.03 * high for p in part[:8]
    )
    if not straight or begin - zero > 3 * ((part[1].step or 0) - begin):
        return None
    text = f"the learning rate warms up from {low:.4g} again at step {begin}"
    return Found(first, text, (("value", f"{low:.4g}"),), (last,))


def _other_than_before(
    before: Sequence[ProgressPoint], part: Sequence[ProgressPoint], params: Mapping[str, float]
) -> Found | None:
    """Steps done again after a resume have another learning rate than they had the first time."""
    if not before or not _deep(part, params) or before[-1].total != part[0].total:
        return None
    rates = {p.step: p.learning_rate or 0.0 for p in before}
    again = [(p, rates[p.step], p.learning_rate or 0.0) for p in part if p.step in rates][:8]
    if len(again) < 3 or not all(old > 0.0 and not 0.67 < new / old < 1.5 for _, old, new in again):
        return None
    point, old, new = again[0]
    text = f"at step {_step(point)} the learning rate is {new:.4g} after the resume, {old:.4g} before"
    return Found(point, text, (("value", f"{new:.4g}"),))


def _runs_out(known: Sequence[ProgressPoint], params: Mapping[str, float]) -> Found | None:
    """The learning rate comes down to exactly zero long before the planned end, and stays there."""
    start = len(known)
    while start > 0 and known[start - 1].learning_rate == 0.0:
        start -= 1
    zero, peak = len(known) - start, max((p.learning_rate or 0.0 for p in known[:start]), default=0.0)
    if start < 5 or zero < params.get("steps", 30) or (known[start - 1].learning_rate or 0.0) > 0.1 * peak:
        return None
    total, step = known[-1].total, known[start].step or 0
    early = step < 0.8 * total and (known[-1].step or 0) > 1.1 * step if total else zero >= max(100, 0.3 * len(known))
    if not early or any((later.step or 0) < (one.step or 0) for one, later in pairwise(known[start:])):
        return None
    planned = f" of {total}" if total else ""
    text = f"the learning rate is 0 from step {step}{planned} on"
    return Found(known[start], text, (("value", "0"),), (known[-1],))


def _climbs_again(part: Sequence[ProgressPoint]) -> Found | None:
    """A smooth decay to almost nothing, then as smooth a climb to the end: a cosine that was stepped past its length."""
    rates = [p.learning_rate or 0.0 for p in part]
    if len(rates) < 60:
        return None
    top = max(range(len(rates)), key=rates.__getitem__)
    low = min(range(top, len(rates)), key=rates.__getitem__)
    falls, rises = rates[top : low + 1], rates[low:]
    smooth = all(later <= one for one, later in pairwise(falls)) and all(later >= one for one, later in pairwise(rises))
    if min(len(falls), len(rises)) < 20 or not smooth or rates[low] > 0.05 * rates[top] or rises[-1] < 0.2 * rates[top]:
        return None
    leap = max(later - one for one, later in pairwise(rises))
    # a straight climb is a warm-up, which a new phase of training may have
    if leap > 0.2 * (rises[-1] - rises[0]) or _straight([rate + rates[top] for rate in rises]):
        return None
    text = f"the learning rate climbs again from step {_step(part[low])} on"
    return Found(part[low], text, (("value", f"{rates[low]:.4g}"),), (part[-1],))


def _loss_scale_minimum(points: Sequence[ProgressPoint], params: Mapping[str, float]) -> Found | None:
    """The fp16 loss scale has fallen to its floor and steps are skipped there."""
    known = [p for p in points if p.loss_scale is not None]
    scales = [p.loss_scale or 0.0 for p in known]
    start = max((index + 1 for index, scale in enumerate(scales) if not scale <= params.get("scale", 1.0)), default=0)
    if len(known) - start < 3 or not any(scale >= 16.0 for scale in scales[:start]):
        return None
    point = known[start]
    return Found(point, f"the loss scale is down to {point.loss_scale:g} at step {_step(point)}")


def _scale_falls(points: Sequence[ProgressPoint], params: Mapping[str, float]) -> Found | None:
    """The loss scale is halved on and on, far below what half precision needs, and nothing is trained after that.

    At the start of a run a dozen falls from a huge scale are how the scaler finds its place.
    """
    falls = [p for p in points if p.format == "loss_scale" and p.loss_scale is not None]
    low = [p for p in falls if (p.loss_scale or 0.0) < params.get("floor", 0.1)]
    held = [p for p in falls if p.loss_scale == 1.0]
    if len(falls) < 4 or not (len(low) >= 3 or (len(held) >= 5 and falls[-1] in held)):
        return None
    first, last = (low or held)[0], falls[-1]
    if sum(p.offset > last.offset and p.loss is not None and math.isfinite(p.loss) for p in points) > 20:
        return None
    text = f"the loss scale was halved {len(falls)} times, down to {last.loss_scale:g}"
    return Found(last, text, (("value", f"{last.loss_scale:g}"),), (first,) if first is not last else ())


def _step(point: ProgressPoint) -> str:
    return "?" if point.step is None else str(point.step)


DETECTORS: Mapping[str, Callable[[Sequence[ProgressPoint], Mapping[str, float]], Found | None]] = {
    "loss_not_finite": _loss_not_finite,
    "loss_spike": _loss_spike,
    "throughput_drop": _slow_down,
    "straggler_step": _slow_step,
    "memory_growth": _memory_growth,
    "lr_stuck": _lr_stuck,
    "lr_off_schedule": _lr_off_schedule,
    "loss_scale_minimum": _loss_scale_minimum,
}

BESIDE: Mapping[str, Callable[[Sequence[ProgressPoint], Mapping[str, float]], Found | None]] = {
    "throughput_drop": _side_rate_falls,
    "memory_growth": _use_grows,
    "loss_scale_minimum": _scale_falls,
}

COMPARING = ("loss_spike", "throughput_drop", "straggler_step")  # what is earlier with what is later

JOB_DETECTORS = ("collective_behind",)  # over structures of all streams, not over the series of one


@dataclass(frozen=True, slots=True)
class Behind:
    """A rank that never enqueued the collective that others wait in, as its own last status says."""

    stream: int
    status: Structure
    captures: tuple[tuple[str, str], ...]


def collective_behind(statuses: Sequence[tuple[int, Structure]]) -> tuple[Behind, ...]:
    """Which ranks stand behind, by the "last enqueued, last completed" lines of c10d's watchdogs.

    Within a process group, ranks with work enqueued and not completed wait in their next collective. A rank whose last
    enqueued work is an earlier one never joined it. (A rank stuck inside the NCCL call counts as not having enqueued.)
    """
    groups: dict[str, dict[int, tuple[int, Structure, int, int]]] = {}
    for stream, one in statuses:
        rank = one.resource.rank if one.resource.rank is not None else _number(one.fields.get("pg_rank"))
        enqueued, completed = _number(one.fields.get("enqueued")), _number(one.fields.get("completed"))
        if rank is not None and enqueued is not None and completed is not None:
            groups.setdefault(str(one.fields.get("pg") or ""), {}).setdefault(rank, (stream, one, enqueued, completed))
    found = []
    for ranks in groups.values():
        waiting = [completed + 1 for _, _, enqueued, completed in ranks.values() if enqueued > completed >= 0]
        if not waiting:
            continue
        stuck = max(waiting)
        behind = {rank: at for rank, at in ranks.items() if at[2] < stuck}
        if behind and len(behind) < len(ranks):
            for rank, (stream, one, enqueued, _) in sorted(behind.items()):
                words = (("behind", str(rank)), ("waited", str(stuck)), ("reached", str(enqueued)))
                found.append(Behind(stream, one, words))
    return tuple(found)


def _number(value: object) -> int | None:
    try:
        return int(str(value))
    except ValueError:
        return None
