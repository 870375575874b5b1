"""Detectors of a learning rate that is off its schedule, and of a loss scale that has fallen to its floor."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from kb.metrics.series_detectors.finding import SeriesFinding, step_label
from kb.metrics.series_detectors.memory import rises_evenly
from kb.model import ProgressPoint

FALLS, HELD = 5, 5  # lines of the decay before a jump, and lines after it
PLUNGE, SERVED = 8, 5  # falls of the loss scale in a row, and losses that were logged before them
LATE, STARTS_BELOW = 5, 128.0  # falls in a row, the first of them to a scale far below that of a start
MOST_RUNS = 3  # maximum number of runs in one file, distinguished by their planned steps


def learning_rate_stuck(points: Sequence[ProgressPoint], params: Mapping[str, float]) -> SeriesFinding | None:
    """Detect a learning rate that is zero for many steps while the loss is still logged."""
    known = [p for p in points if p.learning_rate is not None]
    least = int(params.get("steps", 30))
    if len(known) < least + 5:
        return None
    zero = [p for p in known[5:] if p.learning_rate == 0.0]
    if len(zero) < least or zero[-1].offset != known[-1].offset or len(zero) < 0.9 * (len(known) - 5):
        return None
    return SeriesFinding(zero[0], f"the learning rate is 0 from step {step_label(zero[0])} on")


def learning_rate_off_schedule(points: Sequence[ProgressPoint], params: Mapping[str, float]) -> SeriesFinding | None:
    """Detect a rate that warms up again or differs after a resume, or that runs out or climbs long before the end."""
    known = [p for p in points if p.learning_rate is not None and p.step is not None]
    if len(known) < 8 or not all(math.isfinite(p.learning_rate or 0.0) for p in known):
        return None
    starts = [0, *(at for at in range(1, len(known)) if (known[at].step or 0) <= (known[at - 1].step or 0))]
    ends = [known[at - 1] for at in (*starts[1:], len(known))]
    ended = [p.step for p in ends if p.step is not None and p.total is not None and p.step >= 0.95 * p.total]
    epochs = [p.epoch for p in known if p.epoch is not None and p.total is not None]
    if len(starts) > MOST_RUNS or len(ended) > 1 or (epochs and all(epoch == int(epoch) for epoch in epochs)):
        return None  # step numbers restart in every epoch
    for at, end in pairwise([*starts, len(known)]):
        found = _warms_up_again(known[at:end], params) or _other_than_before(known[:at], known[at:end], params)
        if found is not None:
            return found
    last = known[starts[-1] :]
    return _runs_out(known, params) or _climbs_again(last) or _jumps_back(last)


def _starts_mid_run(part: Sequence[ProgressPoint], params: Mapping[str, float]) -> bool:
    """Whether a part of the log begins in the middle of a run: not at the start of an epoch or run."""
    if len(part) < 8:
        return False
    first, gap = part[0].step or 0, (part[1].step or 0) - (part[0].step or 0)
    return gap > 0 and first >= max(params.get("first_step", 1000), 5 * gap)


def _warms_up_again(part: Sequence[ProgressPoint], params: Mapping[str, float]) -> SeriesFinding | None:
    """Detect a linear rise from zero at the step where the log begins, in the middle of the run."""
    if not _starts_mid_run(part, params):
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
    return SeriesFinding(first, text, (("value", f"{low:.4g}"),), (last,))


def _other_than_before(
    before: Sequence[ProgressPoint], part: Sequence[ProgressPoint], params: Mapping[str, float]
) -> SeriesFinding | None:
    """Detect steps repeated after a resume with another learning rate than the first time."""
    if not before or not _starts_mid_run(part, params) or before[-1].total != part[0].total:
        return None
    rates = {p.step: p.learning_rate or 0.0 for p in before}
    again = [(p, rates[p.step], p.learning_rate or 0.0) for p in part if p.step in rates][:8]
    if len(again) < 3 or not all(old > 0.0 and not 0.67 < new / old < 1.5 for _, old, new in again):
        return None
    point, old, new = again[0]
    text = f"at step {step_label(point)} the learning rate is {new:.4g} after the resume, {old:.4g} before"
    return SeriesFinding(point, text, (("value", f"{new:.4g}"),))


def _runs_out(known: Sequence[ProgressPoint], params: Mapping[str, float]) -> SeriesFinding | None:
    """Detect a learning rate that reaches exactly zero long before the planned end, and stays there."""
    start = len(known)
    while start > 0 and known[start - 1].learning_rate == 0.0:
        start -= 1
    zero, peak = len(known) - start, max((p.learning_rate or 0.0 for p in known[:start]), default=0.0)
    if start < 5 or zero < params.get("steps", 30) or (known[start - 1].learning_rate or 0.0) > 0.1 * peak:
        return None
    total, step = known[-1].total, known[start].step or 0
    early = step < 0.8 * total and (known[-1].step or 0) > 1.1 * step if total else zero >= max(100, 0.3 * len(known))
    if not early or any((later.step or 0) < (item.step or 0) for item, later in pairwise(known[start:])):
        return None
    planned = f" of {total}" if total else ""
    text = f"the learning rate is 0 from step {step}{planned} on"
    return SeriesFinding(known[start], text, (("value", "0"),), (known[-1],))


def _climbs_again(part: Sequence[ProgressPoint]) -> SeriesFinding | None:
    """Detect a smooth decay to almost zero, then a smooth climb until the end: a cosine stepped past its length."""
    rates = [p.learning_rate or 0.0 for p in part]
    if len(rates) < 60:
        return None
    top = max(range(len(rates)), key=rates.__getitem__)
    low = min(range(top, len(rates)), key=rates.__getitem__)
    falls, rises = rates[top : low + 1], rates[low:]
    smooth = all(later <= item for item, later in pairwise(falls)) and all(
        later >= item for item, later in pairwise(rises)
    )
    if min(len(falls), len(rises)) < 20 or not smooth or rates[low] > 0.05 * rates[top] or rises[-1] < 0.2 * rates[top]:
        return None
    leap = max(later - item for item, later in pairwise(rises))
    # a linear climb is a warm-up, as a new phase of training may have
    if leap > 0.2 * (rises[-1] - rises[0]) or rises_evenly([rate + rates[top] for rate in rises]):
        return None
    text = f"the learning rate climbs again from step {step_label(part[low])} on"
    return SeriesFinding(part[low], text, (("value", f"{rates[low]:.4g}"),), (part[-1],))


def _jumps_back(part: Sequence[ProgressPoint]) -> SeriesFinding | None:
    """Detect a decay that jumps to its peak within one line and stays there: a lost schedule, not a restarting one."""
    rates = [p.learning_rate or 0.0 for p in part]
    begin = len(rates)
    while begin > 0 and rates[begin - 1] == rates[-1]:
        begin -= 1
    before = rates[:begin]
    falls = sum(later < earlier for earlier, later in pairwise(before[-FALLS - 1 :]))
    if len(rates) - begin < HELD or falls < FALLS or rates[-1] < max(1.5 * before[-1], 0.9 * max(before)):
        return None
    text = f"the learning rate jumps back from {before[-1]:.4g} to {rates[-1]:.4g} at step {step_label(part[begin])} and stays there"
    return SeriesFinding(part[begin], text, (("value", f"{rates[-1]:.4g}"),), (part[begin - 1],))


def loss_scale_minimum(points: Sequence[ProgressPoint], params: Mapping[str, float]) -> SeriesFinding | None:
    """Detect an fp16 loss scale that has fallen to its minimum, where steps are skipped."""
    known = [p for p in points if p.loss_scale is not None]
    scales = [p.loss_scale or 0.0 for p in known]
    start = max((index + 1 for index, scale in enumerate(scales) if not scale <= params.get("scale", 1.0)), default=0)
    if len(known) - start < 3 or not any(scale >= 16.0 for scale in scales[:start]):
        return None
    point = known[start]
    return SeriesFinding(point, f"the loss scale is down to {point.loss_scale:g} at step {step_label(point)}")


def scale_falls(points: Sequence[ProgressPoint], params: Mapping[str, float]) -> SeriesFinding | None:
    """Detect a loss scale that is halved repeatedly, far below what half precision needs, with no training after it.

    At the start of a run the scaler normally halves a huge initial scale about a dozen times. A scale that falls to 1 or 2
    in one go, after steps that needed no such fall, is below it, too.
    """
    falls = [p for p in points if p.format == "loss_scale" and p.loss_scale is not None]
    low = [p for p in falls if (p.loss_scale or 0.0) < params.get("floor", 0.1)]
    held = [p for p in falls if p.loss_scale == 1.0]
    plunge = _plunge(falls, [p.offset for p in points if p.loss is not None and math.isfinite(p.loss)])
    if len(falls) < 4 or not (len(low) >= 3 or (len(held) >= 5 and falls[-1] in held) or plunge):
        return None
    first, last = (low or held or plunge)[0], falls[-1]
    if sum(p.offset > last.offset and p.loss is not None and math.isfinite(p.loss) for p in points) > 20:
        return None
    text = f"the loss scale was halved {len(falls)} times, down to {last.loss_scale:g}"
    return SeriesFinding(last, text, (("value", f"{last.loss_scale:g}"),), (first,) if first is not last else ())


def _plunge(falls: Sequence[ProgressPoint], trained: Sequence[int]) -> list[ProgressPoint]:
    """Return the falls at the end of the log that halve the scale without a pause, down to 2 or less; empty if too few.

    `trained`: offsets of the losses. The scale must have served for steps before; at the start it is meant to fall, from
    a value so high that a fall that begins low is a later one.
    """
    steep = list(falls[-1:])
    for earlier, later in reversed(list(pairwise(falls))):
        if not (earlier.loss_scale or 0.0) > (later.loss_scale or 0.0):
            break
        steep.insert(0, earlier)
    before = sum(offset < steep[0].offset for offset in trained) if steep else 0
    during = sum(steep[0].offset < offset for offset in trained) if steep else 0
    fell = bool(steep) and (steep[-1].loss_scale or math.inf) <= 2.0 and during <= len(steep)
    served = len(steep) >= PLUNGE and before >= SERVED
    late = len(steep) >= LATE and (steep[0].loss_scale or math.inf) <= STARTS_BELOW
    return steep if fell and (served or late) else []
