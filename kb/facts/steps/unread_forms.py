"""Reads iteration lines of forms that no format knows: a step, and values under names in many languages.

The formats of kb.parsers.logs.progress are found in the whole log by English words. Where they find nothing, the lines that are
kept are read here: all lines of a short log, the last ones of a long one. A form of line counts if it comes several times with a
rising step and has a loss, a learning rate or nothing but the time of a step.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice, pairwise

from kb.model import ProgressPoint
from kb.parsers.logs.prefixes import peel
from kb.parsers.logs.progress import words
from kb.parsers.logs.progress.quantities import find_seconds, own_times, parse_float
from kb.parsers.logs.progress.repeated_lines import LONGEST, counted
from kb.regex.lazy import lazy_compile
from kb.scanning.summary import Series, StreamSummary, kept_lines, series_of, tail_lines

UNREAD = "unread"  # the format of these points
FEWEST = 4  # different steps of a form
MOST_LINES = 1000  # of a log
MOST_FALLS = 3  # one line in so many may be behind the one before it
_NUMBER = r"[-+]?(?:\d{1,12}(?:\.\d{0,20})?(?:[eE][-+]?\d{1,4})?|\.\d{1,20}|(?i:nan|-?inf(?:inity)?))"
_VALUE = rf"['\"]?[ \t]{{0,3}}[:=|]?[ \t]{{0,4}}['\"]?(?P<value>{_NUMBER})(?![\w%]|\.\d)"
_STEP = lazy_compile(
    rf"(?i)(?<![^\W\d_])(?:(?:global_?|train_?)?step|it(?:er(?:ation)?)?|update|batch|{words.STEP})s?['\"]?[ \t]{{0,2}}[:=#№]?[ \t]{{0,8}}"
    r"(?P<step>\d{1,12})(?![\w.]|:\d)(?:[ ]?/[ ]?(?P<total>\d{1,12})(?!\w))?"
)
_LOSS = lazy_compile(
    r"(?i)(?<![^\W\d_])(?:(?:train(?:ing)?|tr|avg|mean|total)[_ /-]?)?"
    rf"(?:loss|nll|mse|mae|xent|cross[_ -]?entropy|objective|objectif|{words.LOSS})" + _VALUE
)
_RATE = lazy_compile(rf"(?i)(?<![^\W\d_])(?:lr|learning[_ ]?rate|{words.RATE})" + _VALUE)
_HELD_OUT = lazy_compile(
    rf"(?i)(?<![^\W_])(?:val|valid|validation|eval|evaluation|test|dev|holdout|held[_ -]out|{words.HELD_OUT})(?![^\W\d_])"
)
# a line that gives nothing but the time of one step, and no number of it
_ONE_STEP = lazy_compile(
    r"(?i)(?<![^\W_])(?:step|iter(?:ation)?|batch)(?: time)?(?: took| takes|:| =|=)? ?(?P<value>\d{1,9}(?:\.\d{1,9})?) ?(?P<unit>ms|s(?:ec(?:ond)?s?)?)[.)]?\s*$"
)
# words of which a line that is read here has one, in lower case
_HINTS = (
    *("loss", "nll", "mse", "mae", "xent", "entropy", "objecti", "lr", "learning", *words.hints()),
    *(" took", " takes", "step time", "iteration time", "batch time"),
)
_DIGITS = lazy_compile(r"(?i)[-+]?\d+(?:[.,]\d+)*(?:e[-+]?\d+)?|\bnan\b|\binf\b")


def read_unread(summary: StreamSummary) -> StreamSummary:
    """Return the summary with the iteration lines that no format knows in its series; the same one if a format knows any."""
    series = with_unread(summary, summary.series)
    return summary if series is summary.series else replace(summary, series=series)


def with_unread(summary: StreamSummary, series: Series) -> Series:
    """Return the series with the iteration lines that no format knows; the same one if a format knows any."""
    if summary.ref.kind != "job" or any(p.step is not None and not p.validation for p in series.points):
        return series
    part_of_known = bool(series.seen) and not series.points  # the lines kept of a log are not cut where its steps are
    if part_of_known or not _hints(summary.tail):
        return series
    year = None if summary.first_time is None else datetime.fromtimestamp(summary.first_time, UTC).year
    whole = summary.tail_offset <= len(summary.head.encode("utf-8", "replace"))
    # what changed between both ends would seem to have changed at once
    lines = kept_lines(summary) if whole else tail_lines(summary)
    found = _points(islice(lines, MOST_LINES), year)
    if not found:
        return series
    return series_of([*series.points, *found], series.seen + len(found), 0, series.beside_mask)


def _points(lines: Iterable[tuple[int, str]], year: int | None) -> list[ProgressPoint]:
    """Return the points of the lines, by offset: of the form with the most lines that counts steps."""
    forms: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for offset, line in lines:
        text = line[:LONGEST]
        if _has_quantity(text) and not _HELD_OUT.search(text):
            forms[_DIGITS.sub("0", " ".join(text.split()))].append((offset, text))
    for _, known in sorted(forms.items(), key=lambda item: (-len(item[1]), item[0])):
        steps = _steps([text for _, text in known])
        if steps and len(set(steps)) >= FEWEST:
            return [_point(offset, text, step, year) for (offset, text), step in zip(known, steps, strict=True)]
    return []


def _hints(text: str) -> bool:
    """Whether a text has a word for what is read here: quick, since most logs and lines have none."""
    low = text.lower()
    return any(hint in low for hint in _HINTS)


def _has_quantity(text: str) -> bool:
    return _hints(text) and any(pattern.search(text) for pattern in (_LOSS, _RATE, _ONE_STEP))


def _steps(lines: Sequence[str]) -> Sequence[int] | None:
    """Return the step of each line of a form: behind a word for it, else by the count that rises evenly, else one step a line."""
    if all(_ONE_STEP.search(line) for line in lines):
        return range(1, len(lines) + 1)
    named = [_STEP.search(line) for line in lines]
    if all(named):
        steps = [int(match["step"]) for match in named if match]
        return steps if _rise(steps) else None
    return counted(lines)


def _rise(steps: Sequence[int]) -> bool:
    """Whether steps rise, but for a few lines of ranks that are behind."""
    falls = sum(later < earlier for earlier, later in pairwise(steps))
    return steps[-1] > steps[0] and MOST_FALLS * falls <= len(steps)


def _point(offset: int, text: str, step: int, year: int | None) -> ProgressPoint:
    raw = text.encode("utf-8", "replace")
    prefix = peel(raw, year)
    loss, rate, named, only = (pattern.search(text) for pattern in (_LOSS, _RATE, _STEP, _ONE_STEP))
    total = int(named["total"]) if named and named["total"] and int(named["total"]) >= step else None
    compute, data = own_times(raw)
    own = float(only["value"]) / (1000 if only["unit"] == "ms" else 1) if only else None
    seconds = find_seconds(raw) if own is None else own
    if compute and seconds and math.isclose(seconds, compute):
        seconds = None  # what a rank worked itself is no time of the step
    return ProgressPoint(
        offset=offset,
        step=None if only else step,
        total=total,
        time=prefix.time,
        loss=parse_float(loss["value"].encode()) if loss else None,
        learning_rate=parse_float(rate["value"].encode()) if rate else None,
        seconds=seconds,
        rank=prefix.rank,
        format=UNREAD,
        compute=compute,
        data=data,
    )
