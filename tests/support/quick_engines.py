"""The engines that a few lines of a log need are built once a process: every diagnosis begins with a matcher that has none yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from unittest import mock

from kb.scanning import staged_matcher
from kb.scanning.matcher import Re2Matcher, ScanPattern


@contextmanager
def quick_engines() -> Iterator[None]:
    """Let matchers share the RE2 sets of the same patterns. A set only answers, so that no answer depends on who else has it."""
    build = lru_cache(maxsize=256)(Re2Matcher)

    def built(patterns: Sequence[ScanPattern]) -> Re2Matcher:
        return build(tuple(patterns))

    with mock.patch.object(staged_matcher, "Re2Matcher", built):
        yield
