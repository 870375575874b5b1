"""A two-stage matcher: it searches the whole block for words, then the lines that contain one for the words' patterns.

The results equal those of a single stage. If many lines of a log have hits, the first stage would only add cost, so each
kind of line is searched for all patterns (kb.scanning.known_lines), and the first stage is tried again when, a few blocks
later, few lines have hits.

The second stage of the first few lines is RE2, with only the patterns whose words were found: it is built in
milliseconds. Hyperscan with all patterns, whose compilation takes a second, comes with more lines. Patterns behind gates
are searched for likewise: the compilation of a single one may take a quarter of a second.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from kb.scanning.matcher import Hit, HyperscanMatcher, Matcher, Re2Matcher, ScanPattern

if TYPE_CHECKING:
    from kb.scanning.known_lines import KnownLines, Starts

SPARSE = 4096  # minimum bytes of a block per word found for two stages to be faster than one
WAIT = 7  # blocks at least before the first stage is tried again
FEW = 192 * 1024  # bytes searched with RE2: of blocks behind gates, and of a block in which words are not sparse
MANY = (
    4 << 20
)  # bytes of lines with words that one matcher searches with RE2, in a third of the time that compiling takes
MOST_BUILT = (
    8  # likewise how many times all patterns one matcher builds into RE2, which it does again for each new word
)
NO_TEXT = ScanPattern(r"\xff\xfe", once=True)  # see `_compiled`
MOST_ALONE = 16  # patterns behind gates that are searched for one after the other; more are searched for together

MakeEngine = Callable[[Sequence[ScanPattern]], Matcher]
_Some = tuple[tuple[int, ...], Matcher]  # the indices of some patterns, and their matcher


class _Compiled(msgspec.Struct, frozen=True, array_like=True):
    """The first stage. The engine's patterns are those at the indices `whole`, followed by the words and the gates.

    `stands_for`, `gates`, `common_gates`: for each word or gate, the indices of the patterns that it finds.
    """

    whole: tuple[int, ...]
    stands_for: tuple[tuple[int, ...], ...]
    gates: tuple[tuple[int, ...], ...]
    common_gates: tuple[tuple[int, ...], ...]
    engine: bytes
    common_engine: bytes


class StagedMatcher:
    """The first stage in Hyperscan, the second in RE2 or Hyperscan. Blocks must be under 2 GiB and have no carriage returns.

    `make_engine` returns the engine with all patterns; it is called when that is needed.
    """

    name = "hyperscan"

    def __init__(
        self, patterns: Sequence[ScanPattern], cached: bytes | None = None, make_engine: MakeEngine = HyperscanMatcher
    ) -> None:
        self._patterns, self._make_engine = patterns, make_engine
        self._wait = 0
        self._searched = 0
        self._built = 0
        self._few: _Some | None = None
        self._behind = 0
        self._few_gated: _Some | None = None
        self._alone: dict[int, Matcher] = {}
        self._gated: _Some | None = None
        self._loaded: Matcher | None = None
        self._known: KnownLines | None = None
        self._compiled = msgspec.msgpack.decode(cached, type=_Compiled) if cached else _compiled(patterns)
        self._first = HyperscanMatcher((), self._compiled.engine)
        common = self._compiled.common_engine
        self._common = HyperscanMatcher((), common, ends_early=True) if common else None

    def hits(self, block: bytes) -> list[Hit]:
        """See `Matcher.hits`."""
        hits, known = self.lines(block)
        return hits + [(pattern, start) for pattern, starts in known.items() for start in starts]

    def lines(self, block: bytes) -> tuple[list[Hit], Starts]:
        """See `Matcher.lines`."""
        if self._wait:
            return self._still(block)
        stage = self._compiled
        found, places, words, opened = [], [], set(), set[int]()
        whole, number = stage.whole, len(stage.whole)
        gates = number + len(stage.stands_for)
        for index, at in self._first.hits(block):
            if index < number:
                found.append((whole[index], at))
            elif index < gates:
                places.append(at)
                words.add(index - number)
            else:
                opened.update(stage.gates[index - gates])
        if len(places) * SPARSE > len(block) and (self._loaded is not None or self._searched + len(block) > FEW):
            self._wait = WAIT
            return self._each_kind(block)
        if places:
            found += self._on_lines(block, places, words)
        if self._common is not None:
            opened.update(pattern for gate, _ in self._common.hits(block) for pattern in stage.common_gates[gate])
        return found + self._behind_gates(block, opened), {}

    def _still(self, block: bytes) -> tuple[list[Hit], Starts]:
        """Return the hits of a block after a dense one. The first stage is not tried again as long as blocks are dense."""
        hits, known = self._each_kind(block)
        if self._wait > 1 or (len(hits) + sum(map(len, known.values()))) * SPARSE <= len(block):
            self._wait -= 1
        return hits, known

    def _each_kind(self, block: bytes) -> tuple[list[Hit], Starts]:
        """Return the hits of a dense block."""
        if self._known is None:
            from kb.scanning.known_lines import KnownLines  # noqa: PLC0415 - most logs do not need it

            self._known = KnownLines(self._patterns, self._every())
        return self._known.lines(block)

    def _behind_gates(self, block: bytes, opened: set[int]) -> list[Hit]:
        """Return the hits of patterns whose gates a block contains. Each is searched for alone: of most, the first hit ends it."""
        if not opened:
            return []
        self._behind += len(block)
        if self._behind <= FEW:
            self._few_gated = self._of_few(self._few_gated, opened)
            return _hits(self._few_gated, block)
        if len(opened) > MOST_ALONE:
            return self._all_behind_gates(block)
        found = []
        for index in sorted(opened):
            if index not in self._alone:
                self._alone[index] = HyperscanMatcher([self._patterns[index]])
            found += [(index, at) for _, at in self._alone[index].hits(block)]
        return found

    def _all_behind_gates(self, block: bytes) -> list[Hit]:
        """Return the hits of all patterns that have gates, found in one search."""
        if self._gated is None:
            stage = self._compiled
            indices = tuple(sorted({index for found in (*stage.gates, *stage.common_gates) for index in found}))
            self._gated = indices, HyperscanMatcher([self._patterns[index] for index in indices])
        return _hits(self._gated, block)

    def _every(self) -> Matcher:
        """The engine with all patterns."""
        if self._loaded is None:
            self._loaded = self._make_engine(self._patterns)
        return self._loaded

    def _on_lines(self, block: bytes, places: list[int], words: set[int]) -> list[Hit]:
        """Return the hits on the lines that contain these words, which are searched together."""
        starts, lines, origins = [], [], []
        size, stop = 0, -1
        for at in sorted(places):
            if at < stop:
                continue
            start = block.rfind(b"\n", 0, at) + 1
            stop = block.find(b"\n", at)
            stop = len(block) if stop < 0 else stop
            lines.append(block[start:stop])
            origins.append(start)
            starts.append(size)
            size += stop - start + 1
        if len(lines) == 1:
            return [(pattern, at + origins[0]) for pattern, at in self._second(lines[0], words)]
        found = []
        for pattern, at in self._second(b"\n".join(lines), words):
            line = bisect_right(starts, at) - 1
            found.append((pattern, at - starts[line] + origins[line]))
        return found

    def _second(self, lines: bytes, words: set[int]) -> list[Hit]:
        """Return the hits on lines that contain these words and no others."""
        self._searched += len(lines)
        if self._loaded is not None or self._searched > MANY or self._built > MOST_BUILT * len(self._patterns):
            return self._every().hits(lines)
        wanted = {index for word in words for index in self._compiled.stands_for[word]}
        self._few = self._of_few(self._few, wanted)
        return _hits(self._few, lines)

    def _of_few(self, made: _Some | None, wanted: set[int]) -> _Some:
        """Return an RE2 matcher of these patterns: the one that is made, if it has them, or one that has those of both."""
        if made is not None and wanted.issubset(made[0]):
            return made
        indices = tuple(sorted(wanted.union(made[0] if made else ())))
        self._built += len(indices)
        return indices, Re2Matcher([self._patterns[index] for index in indices])

    def dump(self) -> bytes:
        """Return the compiled first stage; valid only for the same engine version and CPU features."""
        return msgspec.msgpack.encode(self._compiled)


def _hits(some: _Some, block: bytes) -> list[Hit]:
    indices, matcher = some
    return [(indices[index], at) for index, at in matcher.hits(block)]


def _compiled(patterns: Sequence[ScanPattern]) -> _Compiled:
    from kb.scanning.first_stage import first_stage  # noqa: PLC0415 - a start from the cache does not need it

    stage = first_stage(patterns)
    # Hyperscan looks at every second byte for thousands of words that all have more than two. That takes a quarter longer
    # than looking at each byte once, which a word of two bytes makes it do; this one does not occur in UTF-8.
    first = [*(patterns[index] for index in stage.whole), *stage.words, *stage.gates.words, NO_TEXT]
    return _Compiled(
        stage.whole,
        stage.stands_for,
        (*stage.gates.stands_for, ()),
        stage.common_gates.stands_for,
        HyperscanMatcher(first).dump(),
        HyperscanMatcher(stage.common_gates.words).dump() if stage.common_gates.words else b"",
    )
