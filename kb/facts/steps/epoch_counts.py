"""Tells which iteration lines count from the start of each epoch rather than over the whole run.

A progress bar that restarts with every epoch shows a position within the epoch. Without the length of all epochs, it does
not say which step of the run that is.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from kb.facts.steps.training_series import BAR, KERAS, RESTARTS
from kb.model import ProgressPoint
from kb.scanning.summary import StageMark

# Formats whose lines give the epoch and the place in it: `Epoch: [3][ 120/5000]`.
_IN_EPOCH = frozenset({"epoch_brackets", "train_brackets", "batch_brackets", "ltr", KERAS})
LATE = 2  # number of an epoch that is not the first, counted from 0 or from 1
ENDS = 2  # epochs that end at the same step; once, a bar may only be redrawn with a new label
_BETWEEN = 2048  # bytes between the lines of two epochs, in which an evaluation is logged; a new run logs its settings
_NEARLY = 0.9  # share of a bar's length from which on it counts as complete, since not every update is drawn


def formats_in_epochs(points: Sequence[ProgressPoint], marks: Sequence[StageMark] = ()) -> frozenset[str]:
    """Return the formats of training points whose steps count from the start of each epoch.

    `points`: in the order of their lines; those that kb.facts.steps.training_series counted over epochs have no total.
    """
    found = set()
    for name in dict.fromkeys(point.format for point in points if point.step is not None):
        own = [point for point in points if point.format == name and point.step is not None]
        whole = any(point.total for point in own)
        if (name in _IN_EPOCH and whole) or _restarts(own, marks) or _is_late(own):
            found.add(name)
    return frozenset(found)


def _restarts(points: Sequence[ProgressPoint], marks: Sequence[StageMark]) -> bool:
    """Whether the count restarts when the epoch rises, or after a complete bar while the program runs on."""
    again = 0  # restarts of a count that is no bar
    ends: list[int] = []  # steps at which the last epochs ended, all the same
    alike = len({point.total for point in points}) == 1  # else some of the bars may be of loops inside the training
    for before, point in pairwise(points):
        last, step = before.step or 0, point.step or 0
        if before.epoch is not None and point.epoch is not None:
            if point.epoch <= before.epoch:
                continue
            ends = [*ends, step] if step == last and ends[-1:] in ([], [step]) else [step] if step == last else []
            if 2 * step < last or len(ends) == ENDS:
                return True
        elif alike and 2 * step < last and point.total and last >= _NEARLY * point.total:
            again += _is_next_line(before, point, marks)
            if again == ENDS or _runs_on(before, point, marks):
                return True
    return False


def _is_late(points: Sequence[ProgressPoint]) -> bool:
    """Whether these are bars of one late epoch, in a log without its beginning: nothing shows that they count over the run."""
    epochs = {point.epoch for point in points}
    return (
        all(point.format == BAR and point.total for point in points)
        and len(epochs) == 1
        and (epochs.pop() or 0) >= LATE
    )


def _is_next_line(before: ProgressPoint, point: ProgressPoint, marks: Sequence[StageMark]) -> bool:
    """Whether only few lines stand between two points, and none of them shows a start, as between two epochs."""
    starts = (mark for mark in marks if mark.stage in RESTARTS)
    near = point.offset - before.offset < _BETWEEN
    return near and not any(before.offset < mark.offset <= point.offset for mark in starts)


def _runs_on(before: ProgressPoint, point: ProgressPoint, marks: Sequence[StageMark]) -> bool:
    """Whether both are bars, and nothing between them shows a new start of the program."""
    restarts = (mark for mark in marks if mark.stage in RESTARTS)
    return point.format in (BAR, KERAS) and not any(before.offset < mark.offset <= point.offset for mark in restarts)


def furthest(points: Sequence[ProgressPoint], in_epochs: frozenset[str]) -> ProgressPoint | None:
    """Return the furthest step: of the run if any line counts over it, else the last position within an epoch.

    Formats are told apart: a line that counts from 0 beside a bar that is further is no restart. If a count restarts, only
    what follows is regarded. Beside lines that give their epoch themselves, a bar that restarts is of another loop, such
    as the validation's.
    """
    last: dict[str, ProgressPoint] = {}
    best: dict[str, ProgressPoint] = {}
    for point in points:
        if point.step is None:
            continue
        name, before = point.format, last.get(point.format)
        again = before is not None and 2 * point.step < (before.step or 0)
        if again or name in in_epochs or name not in best or point.step >= (best[name].step or 0):
            best[name] = point
        last[name] = point
    over_run = [point for name, point in best.items() if name not in in_epochs]
    if over_run:
        return max(over_run, key=lambda point: point.step or 0)
    told = [point for point in best.values() if point.format in _IN_EPOCH]
    return max(told or best.values(), key=lambda point: point.offset, default=None)


def epoch_of(points: Sequence[ProgressPoint], place: ProgressPoint) -> int | None:
    """Return the number of the epoch that a line is in, as printed by it or by the last line before it that has one."""
    told = [place.epoch] + [point.epoch for point in reversed(points) if point.offset < place.offset]
    epoch = next((value for value in told if value is not None), None)
    return int(epoch) if epoch is not None and epoch == int(epoch) else None
