"""What one search needs: marks that choose the lines of a large block, hints that choose a small text, and the search itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from kb.values import dataclass

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Search:
    """One search. A line gives the same results alone and within its block, except for the lines directly after it.

    `marks`: expressions for Hyperscan, of which one matches in or just before every line with a result; `hints`: lower-case
    literals, of which one occurs in such a text, or none to search every text; `before`, `after`: how many lines around a mark
    belong to it; `cased`: the marks distinguish upper and lower case.
    """

    marks: tuple[bytes, ...]
    hints: tuple[bytes, ...]
    find: Callable[[bytes], Iterable[Span]]
    after: int = 2
    before: int = 0
    cased: bool = False


def pattern_search(
    hints: str,
    pattern: bytes,
    marks: tuple[bytes, ...] = (),
    accepts: Callable[[bytes], bool] | None = None,
    before: int = 0,
) -> Search:
    """Return the search for a pattern, whose last group that matched is masked. `hints`: separated by spaces; marks too, if none are given."""
    literals = tuple(hints.encode().split())
    compiled: re.Pattern[bytes] | None = None  # when first needed: few of some hundred ever are

    def find(text: bytes) -> Iterator[Span]:
        nonlocal compiled
        if compiled is None:
            compiled = re.compile(pattern)
        for hit in compiled.finditer(text):
            group = hit.lastindex or 0
            if accepts is None or accepts(hit[group]):
                yield hit.span(group)

    return Search(marks or tuple(re.escape(literal) for literal in literals), literals, find, before=before)
