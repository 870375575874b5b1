"""Reads steps from lines of one form that no format knows, by their structure alone: a count that rises evenly beside a value.

Few such lines are enough if they can hardly count anything else: the count rises by the same amount of two or more, from a
multiple of it, has no unit, and each line states a value without a unit too, such as a loss. What a start or a retry counts rises
by one, or says what it counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

from kb.regex.lazy import lazy_compile

FEWEST = 3  # different counts
FEWEST_TOLD = 2  # different counts, where each has several lines or a total
SEVERAL = 3  # lines of each count
LEAST_STRIDE = 5  # of counts whose lines in between were not kept
MOST_NUMBERS = 12  # of a line
LONGEST = 400  # characters of a line that are read
_UNIT = r"(?! ?(?:(?:s|ms|us|sec|secs|seconds|min|minutes|h|[KMGT]i?B|[kMG]|bytes|B|fps)\b(?![/=:])|%|°))"
_COUNT = lazy_compile(  # without a process id in brackets, and without a launcher's number of the rank before the line
    r"(?<![\w.:,/+-])(?!(?<=\[)\d{1,7}\]|(?<!.)\d{1,7}:)(\d{1,7})(?!\w|[.:,]\d| ?\()(?: ?(?:/|of=?|out of) ?(\d{1,7})(?![\w.]))?"
    + _UNIT
)
_VALUE = lazy_compile(r"(?<![\w.:+-])-?\d{1,6}\.\d{1,9}(?:e[+-]?\d{1,3})?(?![\w.:])" + _UNIT)
_DIGITS = lazy_compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_OTHER = lazy_compile(
    r"(?i)\bretr(?:y|ies|ied)|\battempt|\b(?:down|up)?load(?:ed|ing)?\b|\btoken[iz]s?|\bcach|\bindex(?:ed|ing)|\bpre-?process|\bheartbeat"
    r"|\balive\b|\bup-?time\b|\belapsed\b|\bexamples/s|\bwarm-?up\b|\b(?:valid|val|eval|test)\w*\b|\bsav(?:ed|ing)\b"
)


def counted(lines: Sequence[str]) -> list[int] | None:
    """Return the step of each of several lines of one form, in the order in which they were written; None if they do not count any."""
    if len(lines) < FEWEST or any(_OTHER.search(line[:LONGEST]) for line in lines):
        return None
    values = [_VALUE.findall(line[:LONGEST]) for line in lines]
    if not all(values) or len({tuple(each) for each in values}) < FEWEST_TOLD:
        return None
    rows = [[(int(count), total) for count, total in _COUNT.findall(line[:LONGEST])] for line in lines]
    for column in zip(*(row[:MOST_NUMBERS] for row in rows), strict=False):
        totals = {total for _, total in column}
        told = len(totals) == 1 and "" not in totals and int(next(iter(totals))) >= max(count for count, _ in column)
        counts = [count for count, _ in column]
        if _rises(counts, told=told):
            return counts
    return None


def states_value(line: str) -> bool:
    """Whether a line states a value without a unit, as the lines of steps do."""
    return _VALUE.search(line[:LONGEST]) is not None


def last_counted(lines: Iterable[tuple[int, str]]) -> tuple[int, int] | None:
    """Return offset and step of the last line that counts steps, of the form with the most lines; None if no form does.

    `lines`: with their offsets, in order.
    """
    forms: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for offset, line in lines:
        if states_value(line):
            forms[_DIGITS.sub("0", " ".join(line[:LONGEST].split()))].append((offset, line))
    for known in sorted(forms.values(), key=lambda item: (-len(item), item[0])):
        steps = counted([line for _, line in known])
        if steps is not None:
            return known[-1][0], max(steps)
    return None


def _skips(first: int, stride: int) -> bool:
    """Whether counts begin with one stride of theirs and go on by several: lines in between were not kept."""
    return first >= LEAST_STRIDE and stride % first == 0


def _rises(counts: Sequence[int], *, told: bool) -> bool:
    """Whether counts rise evenly, but for ranks that are one line behind. `told`: each is one of a total."""
    distinct = sorted(set(counts))
    gaps = [after - before for before, after in pairwise(distinct)]
    several = all(counts.count(value) >= SEVERAL for value in distinct)
    if len(distinct) < (FEWEST_TOLD if told or several else FEWEST):
        return False
    stride = min(gaps)
    even = all(gap % stride == 0 for gap in gaps) and gaps.count(stride) * 2 >= len(gaps)
    if stride < 2 or not even or not (distinct[0] % stride in (0, 1) or _skips(distinct[0], stride)):
        return False
    back = [before - after for before, after in pairwise(counts) if after < before]
    return all(step <= stride for step in back) and len(back) * 5 <= len(counts) * (len(distinct) >= FEWEST)
