"""Counters of finished work in a process's own lines, such as `loader of rank 3: 12,800 samples read`.

They show that a process continued after trouble also where its log has no iteration lines and no times.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter

from kb.parsers.logs.prefixes import peel
from kb.regex.lazy import lazy_compile

LINES_AFTER = 2  # lines with higher counts after trouble; one may have waited in a buffer
LINES_BEGUN = 3  # such lines where none was printed before the trouble
LONGEST = 400  # characters of a line that are read
_WORK = r"(?:batch(?:es)?|completions?|documents?|episodes?|examples?|files|images|pairs|prompts|records|rollouts?|rows|samples?|sequences|shards|tokens)"
_COUNT = lazy_compile(rf"(?<![\w.,/-])(?P<count>\d{{1,3}}(?:,\d{{3}}){{1,4}}|\d{{1,15}}) {_WORK}\b(?![ =:]*\d)")
_WORDS = tuple(
    f" {word}"  # one of them is in each such line
    for word in (
        *("batch", "completion", "document", "episode", "example", "files", "images", "pairs", "prompts", "records"),
        *("rollout", "rows", "sample", "sequences", "shards", "tokens"),
    )
)
_offset = attrgetter("offset")
_DIGITS = lazy_compile(r"\d+(?:,\d+)*")


@dataclass(frozen=True, slots=True)
class WorkCount:
    """A line that counts work: where it starts, and the count."""

    offset: int
    count: int


def work_counts(lines: Iterable[tuple[int, str]]) -> tuple[tuple[WorkCount, ...], ...]:
    """Return the counts of work in lines, each with its offset, grouped by the shape of the line."""
    shapes: dict[str, list[WorkCount]] = {}
    lines = list(lines)
    every = "\n".join(line for _, line in lines)
    words = [word for word in _WORDS if word in every]  # few of them are in any line
    for offset, line in lines if words else ():
        told = _COUNT.search(line[:LONGEST]) if any(word in line for word in words) else None
        if told is not None:
            body = line[peel(line[:LONGEST].encode("utf-8", "replace")).end :]
            shape = _DIGITS.sub("0", body[:LONGEST])
            shapes.setdefault(shape, []).append(WorkCount(offset, int(told["count"].replace(",", ""))))
    return tuple(map(tuple, shapes.values()))


def works_on(counts: Iterable[Sequence[WorkCount]], offset: int) -> bool:
    """Whether a count rises without a break after an offset: in `LINES_AFTER` lines if it was printed before, else in `LINES_BEGUN`.

    `counts`: grouped by the shape of the line, and in order.
    """
    for items in counts:
        cut = bisect_left(items, offset, key=_offset)
        before, after = items[:cut], items[cut:]
        rises = all(left.count < right.count for left, right in pairwise([*before[-1:], *after]))
        if rises and len(after) >= (LINES_AFTER if before else LINES_BEGUN):
            return True
    return False
