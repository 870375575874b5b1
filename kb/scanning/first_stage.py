"""Chooses the words of the first search stage. Each line that matches a pattern contains at least one of them.

Searching for a thousand words is twice as fast as searching for the patterns they represent. The patterns then run only
on the few lines that contain a word. A pattern that no rare word finds stays in the first stage.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kb.regex.re_tree import REPEATS, parsed, sre
from kb.rulebase.recurring_lines import RECURRING
from kb.scanning.matcher import ScanPattern
from kb.values import dataclass

LEAST = 5  # bytes of a word
LEAST_LETTERS = 4
LONGEST = 12  # more bytes cost time without selecting better
MOST_WORDS = 40  # of a pattern
ENOUGH = 8  # length in bytes above which a longer word is no better
_RECURRING = " ".join(RECURRING.split("\n")).encode()
_LITERAL = re.compile(rb"(?:[\w ]|\\x[0-9a-f]{2})+")
_ESCAPE = re.compile(rb"\\x([0-9a-f]{2})")
_Words = frozenset[bytes]
_Word = tuple[bytes, bool]  # whether its case is ignored


@dataclass(frozen=True, slots=True)
class FirstStage:
    """The words, as patterns, and the indices of the patterns that are searched for directly.

    `stands_for`: for each word, the indices of the patterns that may match a line with it. A line that one of them
    matches contains at least one of its words.
    """

    words: tuple[ScanPattern, ...]
    whole: tuple[int, ...]
    stands_for: tuple[tuple[int, ...], ...]


def first_stage(patterns: Sequence[ScanPattern]) -> FirstStage:
    """Choose words for the patterns that have any. Patterns reported once per block stay unchanged."""
    of_word: dict[_Word, list[int]] = {}
    whole: list[int] = []
    for index, pattern in enumerate(patterns):
        found = None if pattern.once else words_of(pattern)
        if found is None:
            whole.append(index)
        for text in found or ():
            folded = (text.lower(), True) if pattern.ignore_case else (text, False)
            of_word.setdefault(folded, []).append(index)
    shorter = {word: next((part for part in _parts(*word) if part in of_word), None) for word in of_word}
    kept = sorted(word for word, part in shorter.items() if part is None)
    for word, part in shorter.items():
        if part is not None:
            while (still := shorter[part]) is not None:
                part = still  # noqa: PLW2901 - a part of a part is a part
            of_word[part] += of_word[word]
    return FirstStage(
        tuple(ScanPattern(_escaped(word), ignore_case) for word, ignore_case in kept),
        tuple(whole),
        tuple(tuple(sorted(set(of_word[word]))) for word in kept),
    )


def words_of(pattern: ScanPattern) -> _Words | None:
    """Return words such that every matching line contains one; None if there are too many or only common ones."""
    expression = pattern.expression.encode()
    found = _best(_literals(expression) if _LITERAL.fullmatch(expression) else parsed(expression))
    return found if found is not None and len(found) <= MOST_WORDS else None


def _literals(expression: bytes) -> Iterator[tuple[Any, Any]]:
    """Yield the tree of a plain text in scan form, which most patterns are, without the parser."""
    plain = _ESCAPE.sub(lambda escape: bytes((int(escape[1], 16),)), expression)
    return ((sre.LITERAL, byte) for byte in plain)


def _parts(word: bytes, ignore_case: bool) -> Iterator[_Word]:
    """Yield shorter words that find everything that a word finds."""
    for start in range(len(word)):
        for stop in range(start + LEAST, len(word) + 1):
            if stop - start < len(word):
                yield word[start:stop], ignore_case
            if not ignore_case:
                yield word[start:stop].lower(), True


def _best(items: Iterable[tuple[Any, Any]]) -> _Words | None:
    """Return the most selective words of a sequence: one of its literal runs, or one of each branch of a choice in it."""
    runs: list[bytearray] = [bytearray()]
    options: list[_Words] = []
    for op, argument in _flat(items):
        if op is sre.LITERAL:
            runs[-1].append(argument)
        elif op is not sre.AT:
            runs.append(bytearray())
            options += _options(op, argument)
    options += [frozenset([_cut(bytes(run))]) for run in runs]
    return max((option for option in options if all(map(_telling, option))), key=_value, default=None)


def _options(op: Any, argument: Any) -> Iterator[_Words]:
    """Yield the words of a choice, or of a part repeated at least once."""
    if op is sre.BRANCH:
        branches = [_best(branch) for branch in argument[1]]
        known = [words for words in branches if words is not None]
        if len(known) == len(branches):
            yield frozenset().union(*known)
    elif op in REPEATS and argument[0] > 0 and (repeated := _best(argument[2])) is not None:
        yield repeated


def _flat(items: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    """Flatten plain groups, so that literals on both sides of a parenthesis form one run."""
    for op, argument in items:
        if op is sre.SUBPATTERN and not argument[1] and not argument[2]:
            yield from _flat(argument[3])
        elif op in REPEATS and argument[0] == argument[1] == 1:
            yield from _flat(argument[2])
        else:
            yield op, argument


def _cut(run: bytes) -> bytes:
    """Return the part of a run to search for: its end, unless that is common and its start is not."""
    return run[:LONGEST] if not _telling(run[-LONGEST:]) else run[-LONGEST:]


def _telling(word: bytes) -> bool:
    letters = sum(byte > 0x7F or chr(byte).isalnum() for byte in word)
    return len(word) >= LEAST and letters >= LEAST_LETTERS and word.strip().lower() not in _RECURRING


def _value(words: _Words) -> tuple[float, list[bytes]]:
    """How selective words are: the length of the shortest, less for each further word; then any fixed order."""
    return min(ENOUGH, *map(len, words)) - 0.5 * (len(words) - 1), sorted(words)


def _escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)
