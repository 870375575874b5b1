"""Searches a block of bytes for all patterns in one pass, using Hyperscan, or RE2 with the same results.

For each block, a matcher reports which pattern matched in which line: pairs of the pattern's index and the byte offset
of some byte of that line. It may report a pair more than once. Patterns marked `once` only report that the block
contains them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from kb.errors import SignalboxError
from kb.values import dataclass

Hit = tuple[int, int]


@dataclass(frozen=True, slots=True)
class ScanPattern:
    """An expression in scan form (kb.rulebase.patterns). `once`: one report per block is enough."""

    expression: str
    ignore_case: bool = False
    once: bool = False


class Matcher(Protocol):
    """A compiled set of patterns. It must not be shared between threads."""

    name: str

    def hits(self, block: bytes) -> list[Hit]:
        """Return all (pattern index, offset of a byte in the matching line) of a block, in any order."""

    def lines(self, block: bytes) -> tuple[list[Hit], dict[int, list[int]]]:
        """Return the same, some as hits, the others as the sorted starts of lines by pattern."""

    def dump(self) -> bytes | None:
        """Return the compiled set for a cache; None if the engine does not support it."""


class EngineFault(SignalboxError):  # noqa: N818 - says what it is
    """Raised if the installed engine gives wrong results or does not start."""


class HyperscanMatcher:
    """Hyperscan 5.4 in block mode. Blocks must be under 2 GiB and have no carriage returns.

    `ends_early`: all patterns are reported once a block, so a search ends where the last of them is found.
    """

    name = "hyperscan"

    def __init__(
        self, patterns: Sequence[ScanPattern], cached: bytes | None = None, *, ends_early: bool = False
    ) -> None:
        self.ends_early = ends_early or (bool(patterns) and all(pattern.once for pattern in patterns))
        import hyperscan  # noqa: PLC0415 - the RE2 fallback must work where no wheel of it exists

        self._database = _load(hyperscan, cached) if cached else _compile(hyperscan, patterns)

    def hits(self, block: bytes) -> list[Hit]:
        """See `Matcher.hits`."""
        found: list[Hit] = []
        add = found.append

        def on_match(pattern: int, _start: int, end: int, _flags: int, _context: object) -> None:
            add((pattern, end - 1))

        self._database.scan(block, match_event_handler=on_match)
        return found

    def lines(self, block: bytes) -> tuple[list[Hit], dict[int, list[int]]]:
        """See `Matcher.lines`."""
        return self.hits(block), {}

    def dump(self) -> bytes:
        """Return the compiled set; valid only for the same engine version and CPU features."""
        import hyperscan  # noqa: PLC0415

        return bytes(hyperscan.dumpb(self._database))


def _compile(hyperscan: Any, patterns: Sequence[ScanPattern]) -> Any:
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    flags = [
        hyperscan.HS_FLAG_MULTILINE
        | (hyperscan.HS_FLAG_CASELESS if pattern.ignore_case else 0)
        | (hyperscan.HS_FLAG_SINGLEMATCH if pattern.once else 0)
        for pattern in patterns
    ]
    database.compile(
        expressions=[pattern.expression.encode() for pattern in patterns],
        ids=list(range(len(patterns))),
        elements=len(patterns),
        flags=flags,
    )
    return database


def _load(hyperscan: Any, cached: bytes) -> Any:
    database = hyperscan.loadb(cached, hyperscan.HS_MODE_BLOCK)
    database.scratch = hyperscan.Scratch(database)  # a loaded database has none and would refuse to scan
    return database


class Re2Matcher:
    """google-re2's Set, line by line: the same results, about ten times slower."""

    name = "re2"

    def __init__(self, patterns: Sequence[ScanPattern]) -> None:
        import re2  # noqa: PLC0415 - an optional dependency

        options = re2.Options()
        options.max_mem = 1 << 30  # out of memory, a Set returns nothing
        options.encoding = re2.Options.Encoding.LATIN1
        options.log_errors = False
        self._set = re2.Set.SearchSet(options)
        for pattern in patterns:
            self._set.Add(f"(?i:{pattern.expression})" if pattern.ignore_case else pattern.expression)
        self._set.Compile()
        self._once = {index for index, pattern in enumerate(patterns) if pattern.once}

    def hits(self, block: bytes) -> list[Hit]:
        """See `Matcher.hits`."""
        found: list[Hit] = []
        offset = 0
        match, left = self._set.Match, set(self._once)
        for line in block.split(b"\n"):
            if line:
                for pattern in match(line) or ():
                    if pattern not in self._once:
                        found.append((pattern, offset))
                    elif pattern in left:
                        left.remove(pattern)
                        found.append((pattern, offset))
            offset += len(line) + 1
        return found

    def lines(self, block: bytes) -> tuple[list[Hit], dict[int, list[int]]]:
        """See `Matcher.lines`."""
        return self.hits(block), {}

    def dump(self) -> None:
        """Return None: RE2 sets cannot be cached."""


def self_test(build: Callable[[Sequence[ScanPattern]], Matcher]) -> None:
    """Reject an engine that misses matches (upstream issues 358 and 382 of Vectorscan).

    Raises:
        EngineFault: with the case that failed.
    """
    cases: tuple[tuple[tuple[str, ...], bytes, set[int]], ...] = (
        ((r"curl.*\|(?:[\x09\x20])*python",), b"\n curl http://x | sh; curl -s y |  python -\n", {0}),
        (
            (r"Error(?:[\x00-\x09\x0b-\xff])*refused", r"Error: [\x61-\x7a]*", r"connect.*refused"),
            b"Error: x connect to host a refused\n",
            {0, 1, 2},
        ),
        ((r"alpha(?:[\x00-\x09\x0b-\x3a\x3c-\xff])*omega",), b"alpha a b c d e f g h i omega\n", {0}),
    )
    for expressions, block, expected in cases:
        found = {pattern for pattern, _ in build([ScanPattern(e) for e in expressions]).hits(block)}
        if found != expected:
            raise EngineFault(
                f"the pattern engine misses matches ({expressions} on {block!r}: {sorted(found)}); "
                "install hyperscan 0.7.19 or google-re2",
            )
