"""Searches logs in which patterns hit many lines, by looking at each kind of line once.

In such a log, the same lines come again and again with other numbers. The lines of a block are compared without regard to
which digits they contain; for each kind of line that is new, the patterns are searched for once. A kind that a pattern may
match with some digits and not with others is searched for line by line. So the results equal those of a search of all text.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, chain, repeat
from typing import Any

from kb.scanning.matcher import Hit, Matcher, Re2Matcher, ScanPattern

Starts = dict[int, list[int]]  # pattern → the sorted starts of lines that it hits

PIECE = 256 * 1024  # bytes looked at together; they and their lines stay in the processor's cache
LONGEST = 1024  # bytes of a line that is remembered
MOST_NEW = 512  # kinds of line in a piece; a log with more does not repeat itself
MOST_KINDS = 8192
MOST_REST = 64  # blocks
_NEW: Any = object()  # stands for the places of kinds that were not seen before
_ANY_DIGIT = bytes(0x30 if chr(byte).isdecimal() else byte for byte in range(256))
_TOKEN = re.compile(r"\\x([0-9a-f]{2})(?:-\\x([0-9a-f]{2}))?|\{[0-9,]+\}|([0-9])")


class KnownLines:
    """Remembers which patterns hit which kinds of line. `engine`: with all patterns. Must not be shared between threads."""

    def __init__(self, patterns: Sequence[ScanPattern], engine: Matcher) -> None:
        self._patterns, self._engine = patterns, engine
        self._once = {index for index, pattern in enumerate(patterns) if pattern.once}
        self._apart = _apart(tuple(patterns))
        self._forget()
        self._unsure: list[int] = []  # the starts of lines in the block that are searched, whatever their kind
        self._present: set[int] = set()  # patterns reported once a block that are in it
        self._rest, self._resting = 0, 0

    def _forget(self) -> None:
        self._places: dict[bytes, list[int] | None] = {}  # kind → the starts of such lines in the block; None: not kept
        self._hit: dict[bytes, frozenset[int]] = {}  # kinds that patterns hit, whatever the digits
        self._opening: dict[bytes, frozenset[int]] = {}  # likewise for patterns reported once a block
        self._opened: set[int] = set()  # these patterns

    def lines(self, block: bytes) -> tuple[list[Hit], Starts]:
        """Return the hits of a block, some as `Matcher.hits` does, the others as sorted line starts by pattern."""
        if self._resting:
            self._resting -= 1
            return self._engine.hits(block), {}
        self._unsure.clear()
        self._present.clear()
        for kind in self._hit:
            self._places[kind] = []
        for start, piece in _pieces(block):
            if not self._note(start, piece):
                self._rest = self._resting = min(2 * self._rest + 1, MOST_REST)
                return self._engine.hits(block), {}
        self._rest = 0
        return self._searched(block), self._known()

    def _note(self, start: int, piece: bytes) -> bool:
        """Note where the lines of a piece start. False if they are of too many kinds."""
        lines = piece.translate(_ANY_DIGIT).split(b"\n")
        found = list(map(self._places.get, lines, repeat(_NEW)))
        if _NEW in found:
            new = {line for line, places in zip(lines, found, strict=True) if places is _NEW}
            if len(new) > MOST_NEW or len(new) + len(self._places) > MOST_KINDS:
                self._forget()
                return False
            self._learn(sorted(new))
            found = list(map(self._places.__getitem__, lines))
        kept = [(number, places) for number, places in enumerate(found) if places is not None]
        if kept:
            ends = list(accumulate(map(len, lines), initial=start))
            for number, places in kept:
                places.append(ends[number] + number)
        if len(self._present) < len(self._opened):
            for kind in self._opening.keys() & lines:
                self._present |= self._opening[kind]
        return True

    def _learn(self, kinds: list[bytes]) -> None:
        """Search new kinds of line, their digits being zeros, and forms of the patterns that match any digits in place of some."""
        short = [kind for kind in kinds if len(kind) <= LONGEST]
        self._places.update(dict.fromkeys(kinds, self._unsure))
        apart, by_line = self._apart
        found: list[set[int]] = [set() for _ in short]
        for line, pattern in of_lines(short, self._engine.hits):
            if pattern not in self._once:
                found[line].add(pattern)
        unsure = set()
        for line, number in of_lines(short, by_line.hits):
            pattern, depends = apart[number]
            found[line].add(pattern)
            if depends:
                unsure.add(line)
        for line, kind in enumerate(short):
            if line not in unsure:
                self._keep(kind, found[line] - self._once, found[line] & self._once)

    def _keep(self, kind: bytes, hit: set[int], opening: set[int]) -> None:
        self._places[kind] = [] if hit else None
        if hit:
            self._hit[kind] = frozenset(hit)
        if opening:
            self._opening[kind] = frozenset(opening)
            self._opened |= opening

    def _searched(self, block: bytes) -> list[Hit]:
        """Return the hits on lines of unsure kinds."""
        starts = self._unsure
        ends = (block.find(b"\n", start) for start in starts)
        lines = [block[start : end if end >= 0 else len(block)] for start, end in zip(starts, ends, strict=True)]
        return [(pattern, starts[line]) for line, pattern in of_lines(lines, self._engine.hits)]

    def _known(self) -> Starts:
        """Return where lines of kinds that patterns hit start."""
        parts: dict[int, list[list[int]]] = {}
        for kind, patterns in self._hit.items():
            if places := self._places[kind]:
                for pattern in patterns:
                    parts.setdefault(pattern, []).append(places)
        known = {pattern: sorted(chain.from_iterable(places)) for pattern, places in parts.items()}
        return known | {pattern: [0] for pattern in sorted(self._present)}  # of these, it does not matter where


def of_lines(lines: Sequence[bytes], search: Callable[[bytes], list[Hit]]) -> Iterator[tuple[int, int]]:
    """Search lines together, and yield the number of a line and the index of a pattern that hits it."""
    if not lines:
        return
    starts, size = [], 0
    for line in lines:
        starts.append(size)
        size += len(line) + 1
    for pattern, at in search(b"\n".join(lines)):
        yield bisect_right(starts, at) - 1, pattern


def depends_on_digits(expression: str) -> bool:
    """Whether an expression in scan form may match with one digit and not with another in its place."""
    for low, high, digit in _TOKEN.findall(expression):
        first = int(low, 16) if low else ord(digit or "a")
        last = int(high, 16) if high else first
        if first <= 0x39 and last >= 0x30 and not (first <= 0x30 and last >= 0x39):
            return True
    return False


@lru_cache(maxsize=2)
def _apart(patterns: tuple[ScanPattern, ...]) -> tuple[list[tuple[int, bool]], Re2Matcher]:
    """Return the patterns that are searched for apart, with whether they depend on digits, and a matcher of them.

    Those that depend on digits match any digit in place of one; those that are reported once a block are reported on each line.
    """
    from kb.rulebase.patterns import with_any_digits  # noqa: PLC0415 - for such logs only

    apart, forms = [], []
    for index, pattern in enumerate(patterns):
        depends = depends_on_digits(pattern.expression)
        if depends or pattern.once:
            form = with_any_digits(pattern.expression) if depends else pattern.expression
            apart.append((index, depends))
            forms.append(ScanPattern(form, pattern.ignore_case))
    return apart, Re2Matcher(forms)


def _pieces(block: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield parts of a block, each from a line's start to before the end of a line, with their places."""
    start = 0
    while start <= len(block):
        stop = block.rfind(b"\n", start, start + PIECE) if start + PIECE < len(block) else len(block)
        if stop < 0:
            stop = block.find(b"\n", start)
        stop = stop if stop >= 0 else len(block)
        yield start, block[start:stop]
        start = stop + 1
