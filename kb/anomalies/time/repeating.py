"""Takes a run's steps from the structure that repeats, where none of its lines is a step line that the readers know.

A line that nearly all nodes print again and again, with a number that rises by the same amount from one to the next, counts steps,
whatever its words. Of several such lines the one printed most often is taken, and of each log the last one that is kept: the pace
between them is not known. Lines of a loss that name no step, as some trainers print, are placed between them.

Loops of the start-up count, too, before the first step. They rise over a small part of the log only; and a good run of the same job shows
which line counts its steps, so that a run that has no such line made none.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from kb.anomalies.core.run import RunEvent, RunProfile, StepLine
from kb.anomalies.core.severity_words import harm, is_body, is_consequence, is_mild, is_uneasy
from kb.anomalies.time.counts import FEWEST, HIGHEST, Count, Rows, count_in, counts_of, form_of, rows_of
from kb.anomalies.time.shared_counts import shared_count
from kb.parsers.logs.progress.repeated_lines import counted, states_value

FEWEST_ALONE = 8  # lines of the one node that counts for all
MOST_SPARSE = 3  # lines a node up to which those of all together may show more
MOST_NODES = 0.7  # share of the nodes that print the line
SPARSE = 5  # steps between two step lines from which on lines between them are looked for
ROUGH = 0.15  # share of the steps between two lines that are kept by which the step in between is uncertain
OFTEN = 0.3  # times as many lines as the event with the most on a node has, at least
TROUBLE = 0.3  # harm from which on a single node's line counts attempts rather than steps
ALIKE = 1.25  # times as fast as another count, at most, to count the same
EDGE = 6  # last lines of a node that follow each other
FREQUENT = (
    0.5  # likewise, of lines that state a value, or where several speakers that are not told apart print each number
)
WIDE = (
    0.5  # of the share of the log over which another count rises, at least; loops before the first step rise over less
)

StepForms = Mapping[tuple[str, ...], int]  # the words of the events that count steps, and which of their numbers does


@dataclass(frozen=True, slots=True)
class RepeatingSteps:
    """Step lines by structure. `pace`: seconds between two of them on one rank; None if their times do not show it.

    `counted`: all lines of that form that are kept.
    """

    beats: tuple[StepLine, ...] = ()
    pace: float | None = None
    counted: tuple[StepLine, ...] = ()


def repeating_steps(run: RunProfile, known: StepForms | None = None) -> RepeatingSteps:
    """Steps by the last lines that are kept of the event that counts them, in order; none if no event does.

    `known`: what counts the steps of a good run of the same job; if the run has nothing of it, it made no step.
    Lines of a loss that name no step get the step that was under way, as those of their source that count show it.
    """
    if known:
        best = _of_forms(run, known) or _of_few_lines(run)
        return _steps_of(run, best) if best is not None else RepeatingSteps()
    best = _step_count(_counts(run)) or _of_few_lines(run)
    nodes = len(_speakers(run))
    shared = shared_count(run) if best is None or best.often < FEWEST or best.count < MOST_SPARSE * nodes else None
    if shared is not None and (best is None or len(shared.beats) >= best.count):
        return RepeatingSteps(shared.beats, shared.pace, shared.beats)
    return _steps_of(run, best) if best is not None else RepeatingSteps()


def finer_steps(run: RunProfile, known: StepForms | None = None) -> tuple[StepLine, ...]:
    """The lines that count the same steps as sparse step lines do, but more of them; none if no lines do."""
    told = sorted({beat.step for beat in run.beats if not beat.held_out})
    if len(told) < 2 or min(after - before for before, after in pairwise(told)) < SPARSE:
        return ()
    lines = repeating_steps(replace(run, beats=()), known).counted
    timed = sorted((line.spot.time, line.step) for line in lines if line.spot.time is not None and line.spot.dated)
    steps = sorted({line.step for line in lines})
    if len(steps) < 2 or not timed:
        return ()
    stride = min(after - before for before, after in pairwise(steps))
    alike = [_agrees(beat, timed, stride) for beat in run.beats if beat.spot.time is not None]
    return lines if len(alike) > 1 and all(alike) and stride < SPARSE else ()


def _agrees(beat: StepLine, timed: Sequence[tuple[float, int]], stride: int) -> bool:
    """Whether lines count nearly the step of a step line when it was printed; those in between may not have been kept."""
    time = beat.spot.time or 0.0
    place = bisect_right(timed, (time, math.inf))
    if place in (0, len(timed)):
        return abs(timed[max(0, place - 1)][1] - beat.step) <= SPARSE
    (start, before), (end, after) = timed[place - 1], timed[place]
    there = before + (after - before) * (time - start) / max(1e-9, end - start)
    return abs(there - beat.step) <= stride + ROUGH * abs(after - before)


def step_forms(run: RunProfile) -> tuple[StepForms, tuple[StepLine, ...]]:
    """What counts the steps of a run that went well, and its lines: the line with the surest count, and others that count the same."""
    found = _counts(run)
    best = _step_count(found)
    if best is None or not best.value:
        return {}, ()
    alike = [item for item in found if item.value and _is_alike(item, best)]
    forms = {item.form: item.place for item in (*reversed(alike), best)}
    return forms, tuple(beat for row in best.rows for beat in row)


def _steps_of(run: RunProfile, best: Count) -> RepeatingSteps:
    losses = _with_steps(run.losses, best.rows)
    kept = tuple(beat for row in best.rows for beat in row)
    return RepeatingSteps(losses or tuple(row[-1] for row in best.rows), None if losses else _pace(best.rows), kept)


def _speakers(run: RunProfile) -> list[str]:
    return [node for node, kind in run.kinds.items() if node in run.heard and kind != "log"]


def _ends(run: RunProfile) -> dict[str, int]:
    """The offset of the last line of each source, as far as it is kept."""
    ends: dict[str, int] = {}
    for voice in run.voices:
        if voice.last is not None:
            ends[voice.source] = max(voice.last.offset, ends.get(voice.source, 0))
    return ends


def _is_timed(run: RunProfile) -> bool:
    return any(voice.last is not None and voice.last.time is not None for voice in run.voices)


def _counts(run: RunProfile) -> list[Count]:
    """What the lines of nearly all nodes count, or those of a single one."""
    wanted = max(1, MOST_NODES * len(_speakers(run)))
    timed, ends = _is_timed(run), _ends(run)
    found: list[Count] = []
    for event in sorted(run.events.values(), key=lambda item: item.id):
        alone = len(event.nodes) == 1 < wanted and event.count >= FEWEST_ALONE
        if (
            (len(event.nodes) >= wanted or alone)
            and not _is_of_trouble(event, alone=alone)
            and not _of_members(event, run)
        ):
            found += counts_of(event, ends, timed=timed)
    return found


def _of_forms(run: RunProfile, known: StepForms) -> Count | None:
    """The count of the lines that count a good run's steps, however few of them there are."""
    timed, ends = _is_timed(run), _ends(run)
    found = []
    for event in sorted(run.events.values(), key=lambda item: item.id):
        place = known.get(form_of(event))
        rows = [] if place is None else rows_of(event)
        if place is not None and rows and all(_is_step(numbers, place) for row in rows for _, numbers in row):
            steps = tuple(tuple(StepLine(spot, int(numbers[place])) for spot, numbers in row) for row in rows)
            found.append(count_in(event, steps, place, ends, timed=timed))
    return max(found, key=lambda item: (max(row[-1].step for row in item.rows), item.count), default=None)


def _is_step(numbers: Sequence[float], place: int) -> bool:
    return place < len(numbers) and 0 <= numbers[place] < HIGHEST and numbers[place] == int(numbers[place])


def _of_few_lines(run: RunProfile) -> Count | None:
    """The count of a line that few ranks print, or few times, but that can hardly count anything else."""
    found = []
    for event in run.events.values():
        spots = {(spot.source, spot.offset): spot for seen in event.nodes.values() for spot in seen.spots}
        ordered = sorted(spots.values(), key=lambda spot: (spot.time or 0.0, spot.source, spot.offset))
        steps = None if _is_of_trouble(event, alone=True) else counted([spot.text for spot in ordered])
        if steps is not None:
            beats = (StepLine(spot, step) for spot, step in zip(ordered, steps, strict=True))
            row = tuple(sorted(beats, key=lambda beat: beat.step))
            found.append(Count((row,), len(row), event.count, math.inf, total=False))
    return max(found, key=lambda item: item.count, default=None)


def _of_members(event: RunEvent, run: RunProfile) -> bool:
    """Whether it is a line for each member of the job, in one log: their numbers rise, too."""
    return len(event.nodes) == 1 and str(event.count) == run.settings.get("world_size")


def _is_of_trouble(event: RunEvent, *, alone: bool) -> bool:
    if (is_body(event.text) and not _is_row(event)) or is_consequence(event.text):
        return True
    return alone and (harm(event.text, event.level) >= TROUBLE or is_uneasy(event.text) or is_mild(event.text))


def _is_row(event: RunEvent) -> bool:
    """Whether its lines are rows of a table, which have numbers and no words."""
    spots = [seen.spots[-1] for seen in event.nodes.values()]
    return not any(map(str.isalpha, event.text.replace("<*>", ""))) and all(states_value(spot.text) for spot in spots)


def _step_count(found: Sequence[Count]) -> Count | None:
    """The count that is most likely that of the steps.

    Of several counts, those that rise over most of the log count first, then those of lines that state a value, those that tell their end,
    those beside a loss, then the slowest: a pulse or a number of samples rises faster than the steps.
    """
    widest = max((item.span for item in found), default=0.0)
    wide: Sequence[Count] = [item for item in found if item.span >= WIDE * widest]
    wide = [item for item in wide if item.value] or wide
    wide = _told_apart(wide)
    most = max((item.often for item in wide), default=0)
    usual = [item for item in wide if item.often >= (FREQUENT if item.value else OFTEN) * most]
    usual = [item for item in usual if item.total] or usual
    slowest = min((item.speed for item in [one for one in usual if one.loss] or usual), default=0.0)
    alike = [item for item in usual if slowest / ALIKE <= item.speed <= ALIKE * slowest]
    return max(alike, key=lambda item: item.count, default=None)


def _told_apart(found: Sequence[Count]) -> Sequence[Count]:
    """The counts whose speakers are told apart, if their lines are frequent; else all frequent ones."""
    most = max((item.often for item in found), default=0)
    frequent = (
        [item for item in found if item.often >= FREQUENT * most] if any(item.shared for item in found) else found
    )
    return [item for item in frequent if not item.shared] or frequent


def _is_alike(item: Count, best: Count) -> bool:
    """Whether a count rises over the same part of the log as another, as fast, and as far."""
    far = max(row[-1].step for row in best.rows)
    stride = min(b.step - a.step for row in best.rows for a, b in pairwise(row) if b.step > a.step)
    return (
        item.form != best.form
        and best.speed / ALIKE <= item.speed <= ALIKE * best.speed
        and abs(max(row[-1].step for row in item.rows) - far) <= stride
    )


def _pace(rows: Rows) -> float | None:
    """The usual seconds between the last lines of a row; those kept of a beginning are elsewhere."""
    times = [[beat.spot.time for beat in row[-EDGE:] if beat.spot.time is not None and beat.spot.dated] for row in rows]
    gaps = [after - before for row in times for before, after in pairwise(row) if after >= before]
    return (median(gaps) or sum(gaps) / len(gaps) or None) if gaps else None


def _with_steps(losses: Sequence[StepLine], rows: Rows) -> tuple[StepLine, ...]:
    """Lines of a loss with the step under way, by the places of those that count in the same source."""
    counted = {row[0].spot.source: row for row in rows}
    found = []
    for line in losses:
        row = counted.get(line.spot.source, ())
        behind = bisect_right(row, line.spot.offset, key=lambda item: item.spot.offset)
        if 0 < behind < len(row):
            last, after = row[behind - 1], row[behind]
            share = (line.spot.offset - last.spot.offset) / (after.spot.offset - last.spot.offset)
            found.append(replace(line, step=last.step + int(share * (after.step - last.step))))
        elif row:
            found.append(replace(line, step=row[-1 if behind else 0].step))
    return tuple(found)
