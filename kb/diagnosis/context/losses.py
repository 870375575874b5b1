"""The course of the loss around a fault of the training itself: when it went wrong, and its value now."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from kb.facts.job_facts import Facts
from kb.facts.patterns.signals import Signal
from kb.facts.steps.training_series import BAR
from kb.model import ProgressPoint

EXPLODED = 100.0  # factor over the least loss before, from which on a finite loss is already lost
GROWING = 10.0  # factor from which on it has begun to be


def of_losses(first: Signal, facts: Facts) -> Mapping[str, str]:
    """Return words about the losses of the log of a signal, or of the log with the most.

    `loss`: how it broke, "never_finite" (no finite value before), "exploded" (finite, and out of all proportion before),
    "at_times" (finite values between others that are not, and none out of proportion) or "broke"; `good_at` and `bad_at`: the logged
    steps, or epochs, between which it broke; `nan_at`: the first that is not finite; `loss_course`: the values that show it;
    `last_loss` and `last_step`: the end. Where the loss did not break, `norm` ("broke", or "never_finite"), `good_norm` and `bad_norm`
    say how the gradient norm did.
    """
    losses = _losses(first, facts)
    broken = _broken(losses) if losses else {}
    if broken.get("loss") == "never_finite" and _evaluated_finite(first, losses[0], facts):
        broken = {}  # that of an evaluation was: it broke before the first one logged of the training
    end = {"last_loss": f"{losses[-1].loss:.5g}", "last_step": _step(losses[-1])} if losses else {}
    found = {**end, **(broken or _broken_norms(first, facts))}
    return {name: value for name, value in found.items() if value}


def _broken_norms(first: Signal, facts: Facts) -> Mapping[str, str]:
    """Return between which steps the gradient norm broke in the log of a signal, or that it never was finite; nothing if it ends finite."""
    norms = [point for point in facts.streams[first.stream].points if point.grad_norm is not None]
    finite = [at for at, point in enumerate(norms) if math.isfinite(point.grad_norm or 0.0)]
    if not norms or (finite and finite[-1] == len(norms) - 1):
        return {}
    if not finite:
        return {"norm": "never_finite"}
    return {"norm": "broke", "good_norm": _place(norms[finite[-1]]), "bad_norm": _place(norms[finite[-1] + 1])}


def _evaluated_finite(first: Signal, training: ProgressPoint, facts: Facts) -> bool:
    """Whether the log of a signal shows a finite loss of an evaluation before the first one of the training."""
    stream = facts.streams[first.stream]
    if training not in stream.points:
        return False  # the losses are those of another log
    told = (p for p in stream.summary.series.points if p.validation and p.offset < training.offset)
    return any(point.loss is not None and _finite(point) for point in told)


def _losses(first: Signal, facts: Facts) -> list[ProgressPoint]:
    streams = [facts.streams[first.stream], *facts.of_kind("job")]
    found = [[point for point in stream.points if point.loss is not None] for stream in streams]
    return found[0] or max(found, key=len)


def _broken(losses: Sequence[ProgressPoint]) -> Mapping[str, str]:
    ends = next((at for at in range(len(losses) - 1, -1, -1) if _finite(losses[at])), -1) + 1
    if ends == len(losses):  # the last one is finite
        return {}
    before = _without_redrawn([point for point in losses[:ends] if _finite(point)])
    if not before:
        return {"loss": "never_finite", "bad_at": _place(losses[0])}
    at_times = _at_times(losses)
    if at_times:
        return at_times
    least = min(abs(point.loss or 0.0) for point in before) or 1e-9
    if abs(before[-1].loss or 0.0) < EXPLODED * least:
        broke = {"loss": "broke", "good_at": _place(before[-1]), "bad_at": _place(losses[ends])}
        return {**broke, **_course(before[-1:], losses[ends])}
    calm = next(at for at in range(len(before) - 1, -1, -1) if abs(before[at].loss or 0.0) < GROWING * least)
    onset = before[calm + 1] if calm + 1 < len(before) else losses[ends]
    exploded = {"loss": "exploded", "good_at": _place(before[calm]), "bad_at": _place(onset)}
    return {**exploded, **_course(dict.fromkeys((before[calm], before[-1])), losses[ends])}


def _without_redrawn(losses: Sequence[ProgressPoint]) -> list[ProgressPoint]:
    """Return the points without those of a bar that was redrawn at a later step with the loss of the one before."""
    return [
        point
        for before, point in zip([None, *losses], losses, strict=False)
        if before is None or point.format != BAR or point.loss != before.loss
    ]


def _at_times(losses: Sequence[ProgressPoint]) -> Mapping[str, str]:
    """Return where values that are not finite alternate with finite ones that do not grow; nothing where they came to stay."""
    runs = [(finite, list(points)) for finite, points in groupby(losses, _finite)]
    bad = [points for finite, points in runs if not finite]
    if not runs[0][0] or len(bad) < 2 or len(bad[-1]) > max(map(len, bad[:-1])):
        return {}
    last, again = runs[0][1][-1], runs[2][1][0]
    good = next(point for point in runs[0][1] if point.loss == last.loss)  # a bar is redrawn with the loss before
    if any(abs(point.loss or 0.0) >= GROWING * abs(good.loss or 0.0) for point in losses if _finite(point)):
        return {}
    words = ", ".join(f"{point.loss:.4g}{_at(point)}" for point in (good, bad[0][0], again))
    return {"loss": "at_times", "bad_at": _place(bad[0][0]), "loss_course": words}


def _course(finite: Iterable[ProgressPoint], lost: ProgressPoint) -> Mapping[str, str]:
    """Return the values that show how the loss broke, and the first step without a finite one."""
    parts = [f"{point.loss:.4g}{_at(point)}" for point in finite]
    return {"loss_course": ", ".join([*parts, f"{lost.loss}{_at(lost)}"]), "nan_at": _place(lost)}


def _at(point: ProgressPoint) -> str:
    place = _place(point)
    return f" {'in' if place.startswith('epoch') else 'at'} {place}" if place else ""


def _place(point: ProgressPoint) -> str:
    """Return the step of a line, or the epoch of one that counts only epochs; empty if it counts neither."""
    if point.step is not None:
        return f"step {point.step}"
    return f"epoch {point.epoch:g}" if point.epoch is not None else ""


def _finite(point: ProgressPoint) -> bool:
    return math.isfinite(point.loss or 0.0)


def _step(point: ProgressPoint) -> str:
    return "" if point.step is None else str(point.step)
