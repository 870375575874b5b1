"""Detectors of non-finite losses and gradient norms, and of loss spikes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations, islice, pairwise, takewhile
from statistics import median

from kb.metrics.series_detectors.finding import SeriesFinding, step_label
from kb.model import ProgressPoint

EARLY_LEAST = 8  # records before a leap within the first steps, where losses are unstable
CLIMB_BLOCKS = 40  # parts of a log whose medians distinguish a slow climb from noise
CLIMB_LEAST = 8
CLIMB_ORDER = 0.6
CLIMBED = 1.5  # factor of the first loss from which on two losses that climb together diverge
BACK = 2  # losses at the end of a log that are back at the level before a jump
EXCERPT = 20  # up to so many losses are an excerpt that shows what someone asks about, and need few after a jump
EXCERPT_LEAST, STAYS = 2, 4  # losses of an excerpt before and after it doubles
DOUBLED = 2.0
RISEN = 3  # losses from a jump on that show in a longer log that it was no single bad batch
SETTLED, LONG = 20, 50  # losses at the end of a log, at least and at most, that are back for long: as many as were away
FAR = 100.0  # times the level of the loss, and of 1: weights that give such a loss seldom come back
FAR_LEAST = 2  # losses at the end of the log that are all so far above
LOW_LEAST = 3  # records before a leap within the first steps after which no loss comes down again
FALL = 5  # losses in a row, each below the one before: the loss was falling, not fluctuating
FALL_LEAST = 3  # likewise, where the log has no more before the rise


def loss_not_finite(points: Sequence[ProgressPoint], params: Mapping[str, float]) -> SeriesFinding | None:
    """Detect a loss that is nan or inf for more than one step, or a gradient norm that is so for many."""
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
            text = f"loss is {start.loss} at step {step_label(start)}"
            more = () if math.isnan(start.loss or 0.0) else _later_odd(losses[index - run + 2 :])
            return SeriesFinding(start, text, (("value", str(start.loss)),), more)
    return _gradient_not_finite(points, params)


def _finite_again(losses: Sequence[ProgressPoint]) -> bool:
    """Whether the losses at the end are finite for long: the run was restarted, or had a few bad batches."""
    calm = takewhile(lambda p: math.isfinite(p.loss or 0.0) and p.loss != 0.0, reversed(losses))
    return sum(1 for _ in islice(calm, 100)) == 100


def _later_odd(losses: Sequence[ProgressPoint]) -> tuple[ProgressPoint, ...]:
    """Return the first nan after the start, and the last point if that is not finite either."""
    first = next((p for p in losses if math.isnan(p.loss or 0.0)), None)
    last = losses[-1] if losses and not math.isfinite(losses[-1].loss or 0.0) else None
    return tuple(dict.fromkeys(p for p in (first, last) if p is not None))


def _gradient_not_finite(points: Sequence[ProgressPoint], params: Mapping[str, float]) -> SeriesFinding | None:
    """Detect a gradient norm that is nan or inf for many steps or at the log's end, well after the first steps.

    A single infinite norm is normal in fp16 training: it lowers the loss scale.
    """
    run = 0
    points = [p for p in points if p.grad_norm is not None]  # progress bars between the lines have no norm
    for index, point in enumerate(points):
        odd = not math.isfinite(point.grad_norm or 0.0)
        run = run + 1 if odd else 0
        start = points[index - run + 1] if run else point
        late = index - run >= 4 or (start.step or 0) >= params.get("late_step", 200)
        ends = index == len(points) - 1 and run and math.isnan(point.grad_norm or 0.0) and late
        dead = run >= 3 and all(p.loss == 0.0 for p in points[index - 1 : index + 1])
        dead = dead or (
            run >= 2 and index == len(points) - 1 and point.loss == 0.0 and math.isnan(point.grad_norm or 0.0)
        )
        if run >= params.get("gradient_steps", 8) or ends or dead:
            text = f"gradient norm is {start.grad_norm} from step {step_label(start)} on"
            return SeriesFinding(start, text, (("value", str(start.grad_norm)),))
    return None


def loss_spike(points: Sequence[ProgressPoint], params: Mapping[str, float]) -> SeriesFinding | None:
    """Detect a loss that rises above its level by far more than its noise and does not return at once.

    The first steps are skipped, since losses jump there; so is a loss that ends as nan, a finding of its own.
    """
    losses = _of_last_run([p for p in points if p.loss is not None])
    values = [p.loss or 0.0 for p in losses]
    if not all(map(math.isfinite, values)):
        return None
    for index in range(1, len(losses)):
        point = losses[index]
        if point.step is not None and point.step < params.get("first_step", 100):
            if _explodes(losses, index, params):
                return _spike(losses, index, median(values[max(0, index - 20) : index]))
            continue
        before = values[max(0, index - 20) : index]
        least = 1 if point.format.startswith("megatron") else 8  # large batches: a few points show the level
        same_form = [p.loss or 0.0 for p in losses[max(0, index - 20) : index] if p.format == point.format]
        after = values[index + 1 :]
        leaps = len(same_form) >= 2 and _leaps(point.loss or 0.0, same_form, params)
        usual = 2 * len(same_form) >= len(before)  # not an epoch's sum among the losses of steps
        spikes = usual and len(before) >= least and _spikes(point.loss or 0.0, before, after[:3], params)
        lasts = len(after) + 1 >= (RISEN if len(losses) > EXCERPT else 1)
        if (leaps or (spikes and lasts)) and not _loss_recovers(point.loss or 0.0, before, after):
            return _spike(losses, index, median(before))
    return (
        _runs_away(losses, params)
        or _turns_upward(losses, params)
        or _climbs(losses, params)
        or _stays_above(losses, params)
    )


def _runs_away(losses: Sequence[ProgressPoint], params: Mapping[str, float]) -> SeriesFinding | None:
    """Detect a loss that runs off below zero, to 100,000 times the size of its first losses, and stays there.

    A loss of its right sign and size falls to its minimum. One that is negative by nature, such as
    an actor's, can grow to a few thousand times its first size.
    """
    values = [p.loss or 0.0 for p in losses]
    usual = max((abs(value) for value in values[:CLIMB_LEAST]), default=0.0)
    far = -params.get("away", 1e5) * max(usual, 1.0)
    if len(values) < 3 * CLIMB_LEAST or max(values[-CLIMB_LEAST:]) > far:
        return None
    index = next(at for at in range(len(values)) if max(values[at:]) < min(0.0, 0.1 * far))
    point, lowest = losses[index], min(losses, key=lambda p: p.loss or 0.0)
    text = f"loss runs off from {usual:.4g} to {lowest.loss:.4g} from step {step_label(point)} on"
    captures = (("level", f"{usual:.4g}"), ("value", f"{lowest.loss:.4g}"), ("end", "below"))
    more = tuple(dict.fromkeys(p for p in (lowest, losses[-1]) if p is not point))
    return SeriesFinding(point, text, captures, more)


def _of_last_run(losses: Sequence[ProgressPoint]) -> Sequence[ProgressPoint]:
    """Return the losses since the epochs last began at the first: a new run in the same log starts at a high loss."""
    start, before = 0, None
    for index, point in enumerate(losses):
        if point.epoch is None or point.validation:
            continue
        if before is not None and (point.epoch <= 1 < before - point.epoch or _begins(point.epoch, before)):
            start = index
        before = point.epoch
    return losses[start:]


def _begins(epoch: float, before: float) -> bool:
    """Whether a share of an epoch is that of a run that begins, after one that was far into its first epoch."""
    return before != int(before) and before >= 0.5 and epoch < 0.1 * before


def _loss_recovers(here: float, before: Sequence[float], after: Sequence[float]) -> bool:
    """Whether the loss returns to its level and stays there for longer than it was away, at once or until the end of the log."""
    level = median(before)
    noise = 1.4826 * median(abs(value - level) for value in before)
    back = level + max(3 * noise, 0.05 * abs(level), min(0.15 * (here - level), 0.1 * abs(level)))
    away = next((index for index, value in enumerate(after) if value <= back), None)
    if away is None:
        return False
    calm = after[away : away + 100]
    short = away <= 2 and len(calm) >= 2
    soon = away < 20 and (short or len(calm) >= max(10, 2 * away)) and _mostly_below(back, calm)
    long = max(SETTLED, min(away, LONG))
    return soon or (len(after) >= away + long and _mostly_below(back, after[-long:]))


def _mostly_below(limit: float, values: Sequence[float]) -> bool:
    return sum(value > limit for value in values) <= 0.1 * len(values)


def _turns_upward(losses: Sequence[ProgressPoint], params: Mapping[str, float]) -> SeriesFinding | None:
    """Detect, in few widely spaced records, a loss that falls steadily, then rises steadily to many times its minimum.

    Losses of single batches are too noisy for such a shape.
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


def _climbs(losses: Sequence[ProgressPoint], params: Mapping[str, float]) -> SeriesFinding | None:
    """Detect a noisy loss that climbs until the end of the log, above every value at its start.

    Also counts: a loss below its start but at three times its minimum, and one that rises from the first step to many
    times its start. A loss that starts low because its task is incomplete (an empty queue of negatives) rises less.
    """
    size = -(-len(losses) // CLIMB_BLOCKS)
    starts = range(0, len(losses), size or 1)
    values = [median(p.loss or 0.0 for p in losses[at : at + size]) for at in starts]
    if len(values) < CLIMB_LEAST:
        return None
    smooth = [median(values[max(0, at - 1) : at + 2]) for at in range(len(values))]
    low = min(range(len(values)), key=smooth.__getitem__)
    level, rise = smooth[low], params.get("rise", 1.0)
    end, first = min(values[-max(3, len(values) // 8) :]), max(values[:3])
    noise = median(abs(later - earlier) for earlier, later in pairwise(values[: max(low + 1, 3)]))
    if level <= 3 * noise or end < level + rise or len(values) - low < CLIMB_LEAST // 2:
        return None
    risen = next(at for at in range(low, len(values)) if min(smooth[at:]) > level + 0.1 * (end - level))
    if risen < max(3, len(values) // 6):
        far = end >= max(5 * first, first + 5 * rise)
    else:
        far = end >= 1.5 * level and (end >= 1.1 * first or end >= 3 * level)
    if not far or _order(values[low:]) < CLIMB_ORDER:
        return None
    point, peak = losses[starts[risen]], max(losses[starts[risen] :], key=lambda p: p.loss or 0.0)
    text = f"loss climbs from {level:.4g} to {peak.loss:.4g} from step {step_label(point)} on"
    captures = (("level", f"{level:.4g}"), ("value", f"{peak.loss:.4g}"), _end(losses, peak, level))
    return SeriesFinding(point, text, captures, () if peak is point else (peak,))


def _stays_above(losses: Sequence[ProgressPoint], params: Mapping[str, float]) -> SeriesFinding | None:
    """Detect a loss that rises above its first value and never returns, together with the gradient norm."""
    values, norms = [p.loss or 0.0 for p in losses], [p.grad_norm for p in losses]
    if len(values) < CLIMB_LEAST or not all(norm is not None and math.isfinite(norm) and norm > 0 for norm in norms):
        return None
    last = max(3, len(values) // 4)
    end = min(values[-last:])
    far = (
        values[0] > 0
        and min(values[1:]) >= 1.5 * values[0]
        and end >= max(2 * values[0], values[0] + 5 * params.get("rise", 1.0))
    )
    if not far or median(norm or 0.0 for norm in norms[-last:]) < 2 * (norms[0] or 0.0):
        return None
    return _spike(losses, 1, values[0])


def _leaves_for_good(points: Sequence[ProgressPoint], params: Mapping[str, float]) -> SeriesFinding | None:
    """Detect, in an excerpt, a loss that doubles and stays so, or ends at many times all others: too few records for the others.

    Whoever quotes a few lines does so for what they show. `points`: all of the log.
    """
    losses = [p for p in points if p.loss is not None and not p.validation]
    values = [p.loss or 0.0 for p in losses]
    if len(values) > EXCERPT or min(values, default=0.0) <= 0 or len({p.format for p in losses}) != 1:
        return None
    if not all(map(math.isfinite, values)):  # that it ends so is found as such, and says more
        return None
    rise = params.get("rise", 1.0)
    begun = (losses[0].step or 0) >= params.get("first_step", 100)
    for index in range(EXCERPT_LEAST, len(values)):
        before, after = max(values[:index]), values[index:]
        stays = len(after) >= STAYS and min(after) >= max(DOUBLED * before, before + rise)
        far = max(params.get("ends", 20.0) * before, before + 10 * rise)
        ends = begun and index >= LOW_LEAST and min(after) >= far
        if stays or ends:
            return _spike(losses, index, median(values[:index]))
    return None


def spikes_beside(points: Sequence[ProgressPoint], params: Mapping[str, float]) -> SeriesFinding | None:
    """Detect a loss that climbs or leaves its level, by all lines of a log together."""
    return _both_climb(points, params) or _leaves_for_good(points, params)


def _both_climb(points: Sequence[ProgressPoint], params: Mapping[str, float]) -> SeriesFinding | None:
    """Detect a training loss that rises with nearly every record from the first on, while the validation loss rises, too.

    One of them alone may rise rightly: that of a task which becomes harder, or that of an overfitted model.
    """
    losses = [p for p in points if p.loss is not None and not p.validation]
    checks = [p.loss or 0.0 for p in points if p.loss is not None and p.validation]
    values = [p.loss or 0.0 for p in losses]
    if len(values) < CLIMB_LEAST or len(checks) < 2 or not all(map(math.isfinite, (*values, *checks))):
        return None
    falls = sum(later <= earlier for earlier, later in pairwise(values))
    rise = params.get("rise", 1.0)
    far = values[0] > 0 and values[-1] >= max(CLIMBED * values[0], values[0] + rise)
    checked = checks[-1] >= max(CLIMBED * checks[0], checks[0] + 0.5 * rise) and checks[-1] == max(checks)
    if falls > len(values) // CLIMB_LEAST or not (far and checked):
        return None
    point, peak = losses[1], losses[values.index(max(values))]
    text = f"training and validation loss climb, the former from {values[0]:.4g} to {peak.loss:.4g} from step {step_label(point)} on"
    captures = (("level", f"{values[0]:.4g}"), ("value", f"{peak.loss:.4g}"), _end(losses, peak, values[0]))
    return SeriesFinding(point, text, captures, () if peak is point else (peak,))


def _turn(losses: Sequence[ProgressPoint], index: int, level: float) -> tuple[int, float]:
    """Return where the rise to a point began, and the loss before it.

    In a noisy loss that is the point itself and its usual level. Where the loss fell below that level, it rose from the
    last loss of the fall: a median of what it fell through is no loss that it had.
    """
    start = index
    while start > 1 and (losses[start - 1].loss or 0.0) > (losses[start - 2].loss or 0.0):
        start -= 1
    before = [p.loss or 0.0 for p in losses[max(0, start - FALL) : start]]
    if len(before) >= FALL_LEAST and all(later < earlier for earlier, later in pairwise(before)):
        return start, before[-1]
    return index, level


def _order(values: Sequence[float]) -> float:
    """Return how far values are in rising order, -1 to 1 (Kendall's tau)."""
    pairs = list(combinations(values, 2))
    return sum((later > earlier) - (later < earlier) for earlier, later in pairs) / len(pairs)


def _leaps(here: float, before: Sequence[float], params: Mapping[str, float]) -> bool:
    """Whether the loss is a hundred times all recent values, and large: then one step is enough."""
    return here >= params.get("leap", 100.0) * max(1.0, *(abs(value) for value in before))


def _explodes(losses: Sequence[ProgressPoint], index: int, params: Mapping[str, float]) -> bool:
    """Whether the loss leaps within the first steps, above all earlier values, and does not return."""
    here, form = losses[index].loss or 0.0, losses[index].format
    before = [p.loss or 0.0 for p in losses[:index] if p.format == form]
    after = [p.loss or 0.0 for p in losses[index + 1 :]]
    if len(before) >= LOW_LEAST and len(after) + 1 >= RISEN and _leaps(min(here, *after), before, params):
        return True
    early = len(before) >= EARLY_LEAST and _leaps(here, before, params)
    return early and not _loss_recovers(here, before[-20:], after)


def _spikes(here: float, before: Sequence[float], after: Sequence[float], params: Mapping[str, float]) -> bool:
    level = median(before)
    noise = 1.4826 * median(abs(value - level) for value in before)
    width = max(noise, (0.03 if len(before) >= 5 else 0.05) * abs(level))
    if here - level < params.get("deviations", 10.0) * width or here < level + params.get("rise", 1.0):
        return False
    if not after:
        return len(before) >= 5
    return 2 * sum(value > level + max(3 * noise, 0.05 * abs(level)) for value in after) >= len(after)


def _spike(losses: Sequence[ProgressPoint], index: int, level: float) -> SeriesFinding:
    index, level = _turn(losses, index, level)
    point = losses[index]
    onset = index
    while onset > max(1, index - 10) and (losses[onset - 1].loss or 0.0) > 1.05 * abs(level):
        onset -= 1
    peak = max(losses[onset : index + 20], key=lambda p: p.loss or 0.0)
    last = losses[onset - 1].loss if onset else None
    shown = level if last is None else min(level, last)  # it may have fallen far since the values that give its level
    text = f"loss rose from {shown:.4g} to {peak.loss:.4g} from step {step_label(losses[onset])} on"
    more = tuple(dict.fromkeys(p for p in (losses[onset], peak) if p is not point))
    captures = (("level", f"{shown:.4g}"), ("value", f"{peak.loss:.4g}"), _end(losses, peak, level))
    return SeriesFinding(point, text, captures, more)


def _end(losses: Sequence[ProgressPoint], peak: ProgressPoint, level: float) -> tuple[str, str]:
    """Return whether the loss is back at its level at the end of the log, above it or far above it, as a captured field."""
    last = [p.loss or 0.0 for p in losses[-BACK:] if p.offset > peak.offset]
    back = len(last) == BACK and max(last) <= level + min(0.05 * abs(level), 0.1 * ((peak.loss or 0.0) - level))
    far = min((p.loss or 0.0 for p in losses[-FAR_LEAST:]), default=0.0) >= FAR * max(1.0, abs(level))
    return ("end", "back" if back else "far" if far else "above")
