"""Compiles people's regexes for engines with bounded cost that give the same results as Python's `re`.

RE2, which takes linear time, runs regexes without look-around and back references that mean the same in `re`.
All others run with a limited number of steps (kb.regex.backtracking).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from kb.regex.backtracking import Budget, BudgetSpent, Search, Spans, TooLarge, backtracker
from kb.regex.linear import linear_form, without_boundaries
from kb.regex.parser import encoded, parse
from kb.values import dataclass

MEMORY = 16 << 20  # size of RE2's automaton in bytes, beyond which it becomes slower
LARGEST = 20_000  # instructions of RE2: its slowest engine visits each of them once a byte
MOST_WAYS = 4096  # of a pattern without loops
_LOOPING = re.compile(
    r"[*+{]|\(\?(?!:|P<|<?[=!])|\\[1-9]"
)  # and what is neither a plain group, nor one with a name, nor look-around


@dataclass(frozen=True, slots=True)
class Match:
    """A match. Its positions are those in the text."""

    text: Any
    spans: Spans
    names: Mapping[str, int]

    def start(self) -> int:
        """Return the start of the match."""
        return self.spans[0][0]

    def end(self) -> int:
        """Return the end of the match."""
        return self.spans[0][1]

    def group(self, number: int = 0) -> Any:
        """Return a group's captured text, or None."""
        start, end = self.spans[number]
        return None if start < 0 else self.text[start:end]

    def groupdict(self) -> dict[str, Any]:
        """Return each named group's captured text, or None."""
        return {name: self.group(number) for name, number in self.names.items()}


Found = Match | re.Match[Any]


class SafePattern:
    """A compiled regex. A search raises `BudgetSpent` if it cannot decide within the budget."""

    def __init__(self, pattern: str | bytes, ignore_case: bool = False) -> None:
        self._plain: re.Pattern[Any] | None = None
        self._linear: Any = None
        self._loose: Any = None
        self._backtracker: Search | None = None
        if without_loops(pattern):
            self._plain = re.compile(pattern, re.IGNORECASE if ignore_case else 0)
            self.groupindex: Mapping[str, int] = self._plain.groupindex
            return
        self._tree = parse(pattern, ignore_case)
        self.groupindex = self._tree.names
        self._form = linear_form(self._tree)
        self._linear = _re2(self._form.expression) if self._form is not None else None
        if self._linear is None:
            self._backtracker = backtracker(self._tree)

    @property
    def engine(self) -> str:
        """Return the engine: "re" if nothing repeats, "re2", or "steps" for backtracking with counted steps."""
        return "re" if self._plain is not None else "re2" if self._linear is not None else "steps"

    def search(self, text: Any, budget: Budget | None = None) -> Found | None:
        """Find the first match.

        Raises:
            BudgetSpent: the budget (by default that of one search) did not suffice.
        """
        return self._plain.search(text) if self._plain is not None else self._run(text, budget, whole=False)

    def fullmatch(self, text: Any, budget: Budget | None = None) -> Found | None:
        """Match the whole text.

        Raises:
            BudgetSpent: the budget (by default that of one search) did not suffice.
        """
        return self._plain.fullmatch(text) if self._plain is not None else self._run(text, budget, whole=True)

    def finds(self, text: Any, *, unknown: bool, budget: Budget | None = None) -> bool:
        """Return whether there is a match; `unknown` if the budget did not suffice."""
        try:
            return self.search(text, budget) is not None
        except BudgetSpent:
            return unknown

    def fits(self, text: Any, *, unknown: bool = False) -> bool:
        """Return whether the whole text matches; `unknown` if the budget did not suffice."""
        try:
            return self.fullmatch(text) is not None
        except BudgetSpent:
            return unknown

    def find(self, text: Any) -> Found | None:
        """Find the first match; None if there is none or the budget did not suffice."""
        try:
            return self.search(text)
        except BudgetSpent:
            return None

    def finditer(self, text: Any) -> Iterator[Found]:
        """Find successive matches; those beyond the budget are not found."""
        if self._plain is not None:
            yield from self._plain.finditer(text)
            return
        budget, first = Budget(), 0
        while first <= len(text):
            try:
                found = self._run(text, budget, first=first, whole=False)
            except BudgetSpent:
                return
            if found is None:
                return
            yield found
            first = found.end() + (found.end() == found.start())

    def _run(self, text: Any, budget: Budget | None, *, whole: bool, first: int = 0) -> Match | None:
        linear, form = self._linear, self._form
        if linear is not None and form is not None and form.readable(text, foreign=self._tree.foreign):
            symbols = encoded(text, self._tree.named) if self._tree.text else text
            exact = form.sees_boundaries(symbols)
            engine = linear if exact else self._without_boundaries()
            found = engine.fullmatch(symbols) if whole else engine.search(symbols, first)
            if found is None:
                return None
            if exact:
                return Match(text, tuple(map(found.span, range(self._tree.groups + 1))), self.groupindex)
            first = found.start()
        if self._backtracker is None:
            self._backtracker = backtracker(self._tree)
        spans = self._backtracker(text, first, whole, budget or Budget())
        return None if spans is None else Match(text, spans, self.groupindex)

    def _without_boundaries(self) -> Any:
        if self._loose is None:
            self._loose = _re2(without_boundaries(self._tree))
        return self._loose


def without_loops(pattern: str | bytes) -> bool:
    """Whether a regex has no repeats and few alternatives, so that trying it at each position costs almost nothing."""
    text = pattern if isinstance(pattern, str) else pattern.decode("latin-1")
    if _LOOPING.search(text) is not None:
        return False
    groups = text.count("(")
    ways = (text.count("|") / max(groups, 1) + 1) ** max(groups, 1)
    return bool(ways * 2 ** text.count("?") <= MOST_WAYS)


def _re2(expression: str) -> Any:
    import re2  # noqa: PLC0415 - a start that finds no line of interest does without

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False
    options.max_mem = MEMORY
    try:
        found = re2.compile(expression.encode("latin-1"), options)
    except re2.error:
        return None
    return found if found.programsize <= LARGEST else None


@lru_cache(maxsize=4096)
def compiled(pattern: str | bytes, ignore_case: bool = False) -> SafePattern:
    """Compile a regex, or return the cached one.

    Raises:
        re.error: the regex is invalid or too large; also OverflowError and RecursionError from Python's parser.
    """
    try:
        return SafePattern(pattern, ignore_case)
    except TooLarge as error:
        raise re.error(str(error)) from error
