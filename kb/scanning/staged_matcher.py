"""A two-stage matcher: it searches the whole block for words, then the lines that contain one for all patterns.

The results equal those of a single stage. If many lines of a log have hits, the first stage would only add cost, so all
patterns run over the whole block, and the first stage is tried again a few blocks later.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import msgspec

from kb.scanning.matcher import Hit, HyperscanMatcher, ScanPattern

SPARSE = 4096  # minimum bytes of a block per word found for two stages to be faster than one
WAIT = 7  # blocks before the first stage is tried again


class _Compiled(msgspec.Struct, frozen=True, array_like=True):
    """Both engines. The first one's patterns are the second one's at the indices `whole`, followed by the words."""

    whole: tuple[int, ...]
    first: bytes
    every: bytes


class StagedMatcher:
    """Two Hyperscan engines. Blocks must be under 2 GiB and have no carriage returns."""

    name = "hyperscan"

    def __init__(self, patterns: Sequence[ScanPattern], cached: bytes | None = None) -> None:
        self._wait = 0
        self._loaded: HyperscanMatcher | None = None
        self._compiled = b""
        if cached:
            compiled = msgspec.msgpack.decode(cached, type=_Compiled)
            self._whole = compiled.whole
            self._first = HyperscanMatcher((), compiled.first)
            self._compiled = compiled.every  # loaded when a word is found: many logs have none
        else:
            from kb.scanning.first_stage import first_stage  # noqa: PLC0415 - a start from the cache does not need it

            stage = first_stage(patterns)
            self._whole = stage.whole
            self._first = HyperscanMatcher([*(patterns[index] for index in stage.whole), *stage.words])
            self._loaded = HyperscanMatcher(patterns)

    @property
    def _every(self) -> HyperscanMatcher:
        """The second stage, with all patterns."""
        if self._loaded is None:
            self._loaded = HyperscanMatcher((), self._compiled)
        return self._loaded

    def hits(self, block: bytes) -> list[Hit]:
        """See `Matcher.hits`."""
        if self._wait:
            self._wait -= 1
            return self._every.hits(block)
        found, words = [], []
        whole, number = self._whole, len(self._whole)
        for index, at in self._first.hits(block):
            if index < number:
                found.append((whole[index], at))
            else:
                words.append(at)
        if len(words) * SPARSE > len(block):
            self._wait = WAIT
            return self._every.hits(block)
        if words:
            found += self._on_lines(block, words)
        return found

    def _on_lines(self, block: bytes, places: list[int]) -> list[Hit]:
        """Return the hits on some lines, which are searched together."""
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
            return [(pattern, at + origins[0]) for pattern, at in self._every.hits(lines[0])]
        found = []
        for pattern, at in self._every.hits(b"\n".join(lines)):
            line = bisect_right(starts, at) - 1
            found.append((pattern, at - starts[line] + origins[line]))
        return found

    def dump(self) -> bytes:
        """Return both compiled engines; valid only for the same engine version and CPU features."""
        return msgspec.msgpack.encode(_Compiled(self._whole, self._first.dump(), self._every.dump()))
