"""Separates the training loop's points of a stream from those of other loops, and numbers its steps.

A progress bar without a label does not say what it counts: the training, an evaluation inside it, or epochs around it.
The order in which bars advance does. A line without a step, such as the dict that the Hugging Face trainer prints
between two updates of its bar, belongs to the step of the bar around it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from itertools import pairwise

from kb.facts.steps.elapsed_times import without_elapsed
from kb.facts.steps.epoch_bars import without_epoch_bars
from kb.model import ProgressPoint
from kb.parsers.logs.progress.bars import counts_otherwise
from kb.parsers.logs.progress.line_format import changed
from kb.scanning.summary import Series, StageMark, StreamSummary
from kb.values import dataclass

BAR = "tqdm"
KERAS = "keras"  # its bars count within an epoch
MLPERF = "mlperf"
LEAST_EPOCHS = 2  # lines whose step is the number of the epoch before it, from which on this is no chance
RESTARTS = frozenset({"launch", "init", "checkpoint_load"})  # stages of another attempt in the same file
OTHER_LOOPS = frozenset({"evaluating", "teardown"})  # stages in which a bar does not count training steps
REDRAWN = 1024  # bytes behind a bar in which it may be drawn again
ALTERNATE = 6  # changes between two lengths of bars that show that they take turns, although some of them are missing
MOST_TOTALS = 64  # lengths of bars in a file; if there are more, they count batches or files


@dataclass(slots=True)
class _Stretch:
    """Consecutive points of bars of one length, with rising steps."""

    total: int
    points: list[int]
    first: int
    last: int


@dataclass(slots=True)
class _Bar:
    """A bar from its start to its end or to the next one of its length.

    `moves`: the indices, over all stretches, at which it starts or advances; unchanged redraws do not count.
    """

    total: int
    stretches: list[_Stretch] = field(default_factory=list)
    moves: list[int] = field(default_factory=list)

    @property
    def last(self) -> int:
        """The step of its last update."""
        return self.stretches[-1].last


def training_series(summary: StreamSummary) -> Series:
    """Return the series of a stream, with the bars of evaluations marked, and steps added to lines without one."""
    series = without_epoch_bars(_without_single(_with_epochs_as_such(summary.series)), BAR)
    series = _without_false_start(without_elapsed(series, BAR), summary)
    bars = [at for at, p in enumerate(series.points) if _is_bar(p)]
    stepless = any(_belongs_to_a_step(p) for p in series.points)
    if len(bars) < 2 and not stepless:
        return series
    points = list(series.points)
    if len({points[at].total for at in bars}) > 1:
        _settle_bars(points, bars, summary.marks)
    if stepless:
        _number_lines(points, thinned=series.mask != 0)
    return replace(series, points=tuple(points))


def _with_epochs_as_such(series: Series) -> Series:
    """Return the series with the "steps" of MLPerf's lines as epochs, where each is the number of the epoch that just ended."""
    own = [point for point in series.points if point.format == MLPERF]
    pairs = [(later.step, before.epoch) for before, later in pairwise(own) if later.step is not None]
    if len(pairs) < LEAST_EPOCHS or any(step != epoch for step, epoch in pairs):
        return series

    def told(point: ProgressPoint) -> ProgressPoint:
        counts = point.format == MLPERF and point.step is not None
        return replace(point, step=None, epoch=float(point.step or 0)) if counts else point

    last = told(series.last) if series.last is not None else None
    first = told(series.first) if series.first is not None else None
    return replace(series, points=tuple(map(told, series.points)), first=first, last=last)


def _without_single(series: Series) -> Series:
    """Return the series without bars of one step that stay at 0: a loop of one counts no training, though its end is an end."""
    single = [point for point in series.points if point.format == BAR and point.total == 1]
    if not single or any(point.step for point in single):
        return series
    return replace(series, points=tuple(p for p in series.points if p.format != BAR or p.total != 1))


def counts_few(point: ProgressPoint) -> bool:
    """Whether a bar without any measurement is over in less than a second: it counts files, splits or parts, not the training."""
    quick = bool(point.seconds) and (point.seconds or 0.0) * (point.total or 0) < 1.0
    return point.format == BAR and bool(point.total) and quick and point.loss is point.learning_rate is None


def _without_false_start(series: Series, summary: StreamSummary) -> Series:
    """Return the series without bars that stay at 0 and whose label or pace, which shows that they count no steps, comes later.

    Only where no other line has a step, and the text behind the bar is kept.
    """
    if not series.points or any(not _is_bar(point) or point.step for point in series.points):
        return series
    kept = tuple(point for point in series.points if not counts_otherwise(_text_at(summary, point.offset), point.total))
    return series if len(kept) == len(series.points) else replace(series, points=kept)


def _text_at(summary: StreamSummary, offset: int) -> str:
    """Return the text from an offset on, as far as the start or end of the stream that is kept; empty if it is not."""
    for start, text in ((0, summary.head), (summary.tail_offset, summary.tail)):
        raw = text.encode("utf-8", "replace")
        if start <= offset < start + len(raw):
            return raw[offset - start : offset - start + REDRAWN].decode("utf-8", "replace")
    return ""


def steps_over_epochs(points: Sequence[ProgressPoint]) -> list[ProgressPoint]:
    """Return training points with steps counted across epochs, if their lines count from the start of each epoch.

    Only if that is certain: the lines name the epoch, all epochs plan the same number of steps, except that a limit of
    steps may shorten the last, and the count restarts when the epoch rises. These points have no total, since the number
    of epochs is unknown.
    """
    within = [p for p in points if p.total and p.step is not None and p.epoch is not None and p.epoch == int(p.epoch)]
    first = min((p.epoch for p in within if p.epoch is not None), default=None)
    if first not in (0.0, 1.0):
        return list(points)
    total, last = within[0].total or 0, within[-1]
    cut = last.total if (last.total or 0) < total else None
    if any(p.total != total and (p.total, p.epoch) != (cut, last.epoch) for p in within):
        return list(points)
    counted: dict[int, int] = {}
    restarts, before = 0, within[0]
    for point in within:
        epoch, step = int(point.epoch or 0) - int(first), point.step or 0
        fallen = step < (before.step or 0)
        restarts += fallen and (point.epoch or 0.0) > (before.epoch or 0.0)
        if fallen and point.epoch == before.epoch and before.step == total:
            epoch += 1  # a finished bar restarts before its label changes
        else:
            before = point
        counted[point.offset] = total * epoch + step
    if not restarts or any((p.step or 0) > total for p in within):
        return list(points)
    return [changed(p, step=counted[p.offset], total=None) if p.offset in counted else p for p in points]


def shows_a_step(point: ProgressPoint) -> bool:
    """Whether a training line shows that the loop made a step; its bar at 0 without a loss does not."""
    return point.step != 0 or point.loss is not None


def _is_bar(point: ProgressPoint) -> bool:
    return point.format == BAR and not point.validation and point.total is not None and point.step is not None


def _belongs_to_a_step(point: ProgressPoint) -> bool:
    """Whether a training line has measurements but no step."""
    if point.step is not None or point.validation or point.format == BAR:
        return False
    return any(value is not None for value in (point.loss, point.grad_norm, point.learning_rate))


# -- bars ----------------------------------------------------------------------------------------------------------------


def _settle_bars(points: list[ProgressPoint], bars: Sequence[int], marks: Sequence[StageMark]) -> None:
    """Mark bars of different loops than training, and count epochs for bars of epochs."""
    stretches = _stretches(points, bars)
    totals = {stretch.total for stretch in stretches}
    if len(totals) > MOST_TOTALS:
        return
    logged = _drawn_after_losses(points)
    outer: set[int] = set()
    if logged:
        nested = totals - logged
    else:
        whole = _joined(stretches)
        outer, nested = _nesting(whole)
        settled = nested | outer
        nested |= (
            _unfinished(points, whole, marks, outer) | _alternating(whole, settled) | _after_epochs(whole, settled)
        )
    nested |= _behind_the_end(points, stretches, marks)
    nested -= {points[at].total for at in bars if points[at].loss is not None}
    for at in bars:
        point = points[at]
        if point.total in nested:
            points[at] = changed(point, validation=True)
        elif point.total in outer and point.loss is None:
            points[at] = changed(point, epoch=float(point.step or 0), step=None, total=None, seconds=None)


def _drawn_after_losses(points: Sequence[ProgressPoint]) -> set[int | None]:
    """Return the lengths of the bars redrawn right after a line with a loss: those of the training loop."""
    return {
        after.total
        for line, after in pairwise(points)
        if _belongs_to_a_step(line) and line.loss is not None and _is_bar(after)
    }


def _stretches(points: Sequence[ProgressPoint], bars: Iterable[int]) -> list[_Stretch]:
    found: list[_Stretch] = []
    for at in bars:
        total, step = points[at].total or 0, points[at].step or 0
        if found and found[-1].total == total and step >= found[-1].last:
            found[-1].points.append(at)
            found[-1].last = step
        else:
            found.append(_Stretch(total, [at], step, step))
    return found


def _joined(stretches: Sequence[_Stretch]) -> list[_Bar]:
    """Return the bars by start: a stretch continues the last bar of its length, or starts a new one."""
    found: list[_Bar] = []
    running: dict[int, _Bar] = {}
    for place, stretch in enumerate(stretches):
        bar = running.get(stretch.total)
        if bar is None or stretch.first < bar.last:
            bar = running[stretch.total] = _Bar(stretch.total)
            found.append(bar)
        if not bar.stretches or stretch.last > bar.last:
            bar.moves.append(place)
        bar.stretches.append(stretch)
    return found


def _nesting(bars: Sequence[_Bar]) -> tuple[set[int], set[int]]:
    """Return the lengths of bars around the training loop, and of bars inside it.

    If a bar advances on its own and stops while another one runs, it is the training and the other an evaluation. A bar
    that advances only after another one has run counts epochs.
    """
    outer: set[int] = set()
    nested: set[int] = set()
    for bar in bars:
        inside = {
            other.total
            for other in bars
            if other.total != bar.total and any(bar.moves[0] < place < bar.moves[-1] for place in other.moves)
        }
        if inside and _advances_alone(bar):
            nested |= inside
        elif inside:
            outer.add(bar.total)
    return outer - nested, nested - outer


def _advances_alone(bar: _Bar) -> bool:
    alone = sum(stretch.last - stretch.first for stretch in bar.stretches)
    return alone >= 2 and alone > sum(after.first - before.last for before, after in pairwise(bar.stretches))


def _unfinished(
    points: Sequence[ProgressPoint], bars: Sequence[_Bar], marks: Sequence[StageMark], outer: set[int]
) -> set[int]:
    """Return the length of a last bar that starts before the previous one is complete, or in another loop's stage."""
    last = bars[-1]
    before = next((bar for bar in reversed(bars[:-1]) if bar.total not in {last.total, *outer}), None)
    if before is None or last.moves[0] < before.moves[-1] or last.stretches[0].first > max(2, last.total // 10):
        return set()
    start, stop = points[before.stretches[-1].points[-1]].offset, points[last.stretches[0].points[0]].offset
    stages = {mark.stage for mark in marks if start < mark.offset <= stop}
    inside = before.last < before.total and _advances_alone(before) and not stages & RESTARTS
    return {last.total} if inside or stages & OTHER_LOOPS else set()


def _behind_the_end(
    points: Sequence[ProgressPoint], stretches: Sequence[_Stretch], marks: Sequence[StageMark]
) -> set[int]:
    """Return the lengths of bars that are first drawn after the training ended at its last step: evaluations and predictions."""
    ends = [mark.offset for mark in marks if mark.stage == "teardown"]
    if not ends or any(mark.offset > ends[-1] and mark.stage in RESTARTS for mark in marks):
        return set()
    before = [item for item in stretches if points[item.points[0]].offset < ends[-1]]
    if not any(item.last == item.total for item in before):
        return set()
    return {item.total for item in stretches} - {item.total for item in before}


def _alternating(bars: Sequence[_Bar], settled: set[int]) -> set[int]:
    """Return the shorter of two alternating lengths: an epoch trains, then evaluates.

    Of a long log, only some updates are kept, and not every epoch is evaluated, so one length may come several times in a row
    if they alternate often.
    """
    order = [bar.total for bar in bars if bar.total not in settled]
    changes = sum(before != after for before, after in pairwise(order))
    if len(order) < 4 or len(set(order)) != 2 or (changes < len(order) - 1 and changes < ALTERNATE):
        return set()
    shorter = min(order)
    return {shorter} if shorter != order[0] else set()


def _after_epochs(bars: Sequence[_Bar], settled: set[int]) -> set[int]:
    """Return the shorter length of a last bar after several complete bars of one length: a test after the epochs."""
    order = [bar for bar in bars if bar.total not in settled]
    if len(order) < 3 or len({bar.total for bar in order[:-1]}) != 1:
        return set()
    last, epoch = order[-1], order[0]
    return {last.total} if last.total < epoch.total and all(bar.last == bar.total for bar in order[:-1]) else set()


# -- lines without a step ------------------------------------------------------------------------------------------------


def _number_lines(points: list[ProgressPoint], *, thinned: bool) -> None:
    """Fill in the step of lines without one from the bars around them.

    The trainer redraws its bar right after a line, at the step of that line. In a thinned series the neighbors may be
    far away; then the epoch of a line gives its step.
    """
    places = [at for at, p in enumerate(points) if p.step is not None and not p.validation and p.format != KERAS]
    if not places:
        return
    lines = [at for at, p in enumerate(points) if _belongs_to_a_step(p)]
    steps = {at: _step_around(points, places, at) for at in lines}
    pace = _steps_an_epoch(points, steps) if thinned else None
    for at in lines:
        found, epoch = steps[at], points[at].epoch
        step = found[0] if found else None
        if pace and epoch is not None:
            step = _within_bars(round(epoch * pace), points, places, at)
        if step is not None:
            points[at] = changed(points[at], step=step, total=found[1] if found else None)


def _within_bars(step: int, points: Sequence[ProgressPoint], places: Sequence[int], at: int) -> int:
    """Return an estimated step, not beyond those of the bars before and after its line, as epochs are logged rounded.

    A bar of another length between them, such as that of an evaluation, counts something else.
    """
    index = bisect_right(places, at)
    before = points[places[index - 1]] if index else None
    low = (before.step or 0) if before else 0
    later = (points[place] for place in places[index:])
    after = next(
        (point for point in later if before is None or before.total is None or point.total == before.total), None
    )
    high = (after.step or 0) if after else points[places[-1]].total or step
    return max(low, min(step, high)) if low <= high else step


def _step_around(points: Sequence[ProgressPoint], places: Sequence[int], at: int) -> tuple[int, int | None] | None:
    """Return the step and total of the bar redrawn after a line, else of the last one before it."""
    index = bisect_right(places, at)
    before = points[places[index - 1]] if index else None
    after = points[places[index]] if index < len(places) else None
    again = after is not None and places[index] == at + 1 and after.format == BAR
    if after is not None and again and (before is None or (after.step or 0) >= (before.step or 0)):
        return after.step or 0, after.total
    return None if before is None else (before.step or 0, before.total)


def _steps_an_epoch(
    points: Sequence[ProgressPoint], steps: Mapping[int, tuple[int, int | None] | None]
) -> float | None:
    """Return the number of steps per epoch, from the last lines with an epoch: a series keeps all its last points."""
    placed = [(points[at].epoch, found[0]) for at, found in steps.items() if found and points[at].epoch]
    ratios = sorted(step / epoch for epoch, step in placed[-8:] if epoch)
    if len(ratios) < 3 or ratios[-1] > 1.2 * ratios[0]:
        return None
    return ratios[len(ratios) // 2]
