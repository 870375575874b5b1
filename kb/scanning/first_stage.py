"""Chooses the words of the first search stage. Each line that matches a pattern contains at least one of them.

Searching for a thousand words is twice as fast as searching for the patterns they represent. The patterns then run only
on the few lines that contain a word. A pattern reported once a block has gates instead: words reported once a block,
behind which the pattern itself is searched for. A pattern that no rare word finds stays in the first stage.

The engine looks at the ends of words, two bytes at a time: it is half as fast again where these ends are rare, so a word
is cut where the lines that runs print at every step have no such letters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from kb.regex.re_tree import REPEATS, parsed, sre
from kb.rulebase.recurring_lines import RECURRING, SIDE_LINES
from kb.scanning.matcher import ScanPattern
from kb.values import dataclass

LEAST = 5  # bytes of a word
LEAST_LETTERS = 4
SHORTEST, FEWEST_LETTERS = 4, 3  # likewise where no such words find a pattern, and for gates
LONGEST = 12  # more bytes cost time without selecting better
MOST_WORDS = 64  # of a pattern
ENOUGH = 8  # length in bytes above which a longer word is no better
MOST_SPELLINGS = 64  # of a run of characters, such as `[Ee]rrors?`, where no plain words find a pattern
MOST_MEMBERS = 4  # of a class of characters in such a run
_END = 3  # bytes at the end of a word that should be rare
_COMMON_END = 0.3  # what a common end costs of a word's value, in bytes of its length
_RECURRING = " ".join(RECURRING.split("\n")).encode()
_SIDE_LINES = " ".join(SIDE_LINES.split("\n")).encode()
_LITERAL = re.compile(rb"(?:[\w ]|\\x[0-9a-f]{2})+")
_ESCAPE = re.compile(rb"\\x([0-9a-f]{2})")
_NO_LETTERS = bytes(byte for byte in range(0x80) if not chr(byte).isalnum())
_DIGIT = bytes(0x30 if chr(byte).isdecimal() else byte for byte in range(256))
_DIGITS = [(sre.RANGE, (0x30, 0x39))]
_Words = frozenset[bytes]
_Word = tuple[bytes, bool]  # whether its case is ignored
_Items = Iterable[tuple[Any, Any]]
_Judge = Callable[[bytes], bool]
_Spell = Callable[[Any, Any], "_Words | None"]
_EMPTY: _Words = frozenset([b""])


@dataclass(frozen=True, slots=True)
class Gates:
    """Words that are reported once a block, and the indices of the patterns for which each stands."""

    words: tuple[ScanPattern, ...]
    stands_for: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class FirstStage:
    """The words, as patterns, and the indices of the patterns that are searched for directly.

    `stands_for`: for each word, the indices of the patterns that may match a line with it. A line that one of them
    matches contains at least one of its words. The patterns behind gates are searched for in the blocks that contain a
    gate. `common_gates`: those on most lines of many runs. They are searched for apart, since that search ends early.
    """

    words: tuple[ScanPattern, ...]
    whole: tuple[int, ...]
    stands_for: tuple[tuple[int, ...], ...]
    gates: Gates
    common_gates: Gates


def first_stage(patterns: Sequence[ScanPattern]) -> FirstStage:
    """Choose words for the patterns that have any, gates for the others and for those that are reported once a block."""
    of_word: dict[_Word, list[int]] = {}
    of_gate: dict[_Word, list[int]] = {}
    whole: list[int] = []
    for index, pattern in enumerate(patterns):
        words, gates = _chosen(pattern)
        if words is None and gates is None:
            whole.append(index)
        for of, chosen in ((of_word, words), (of_gate, gates)):
            for word in chosen or ():
                of.setdefault(word, []).append(index)
    kept = _without_longer(of_word)
    return FirstStage(
        tuple(_searched(word) for word in kept),
        tuple(whole),
        tuple(tuple(sorted(set(of_word[word]))) for word in kept),
        _gates({gate: found for gate, found in of_gate.items() if not _is_common(gate)}),
        _gates({gate: found for gate, found in of_gate.items() if _is_common(gate)}),
    )


@lru_cache(maxsize=8192)
def _chosen(pattern: ScanPattern) -> tuple[tuple[_Word, ...] | None, tuple[_Word, ...] | None]:
    """Return a pattern's words, else its gates. Rule bases that are built one after the other differ in few patterns."""
    words = None if pattern.once else words_of(pattern)
    gates = gates_of(pattern) if words is None else None
    folded = _ignores_case(pattern) if words or gates else False
    return _cased(words, folded), _cased(gates, folded)


def _cased(words: _Words | None, folded: bool) -> tuple[_Word, ...] | None:
    return None if words is None else tuple((word.lower(), True) if folded else (word, False) for word in words)


def _gates(of_gate: Mapping[_Word, Sequence[int]]) -> Gates:
    return Gates(
        tuple(_searched(gate, once=True) for gate in sorted(of_gate)),
        tuple(tuple(of_gate[gate]) for gate in sorted(of_gate)),
    )


def _is_common(gate: _Word) -> bool:
    return gate[0].strip().lower() in _SIDE_LINES


def _without_longer(of_word: dict[_Word, list[int]]) -> list[_Word]:
    """Return the words that contain no other. Each stands for the patterns of those that contain it, too."""
    shorter = {word: next((part for part in _parts(*word) if part in of_word), None) for word in of_word}
    for word, part in shorter.items():
        if part is not None:
            while (still := shorter[part]) is not None:
                part = still  # noqa: PLW2901 - a part of a part is a part
            of_word[part] += of_word[word]
    return sorted(word for word, part in shorter.items() if part is None)


def _text(op: Any, argument: Any) -> _Words | None:
    """Return a text; None for any other item."""
    return frozenset([argument]) if op is sre.LITERAL else None


def words_of(pattern: ScanPattern) -> _Words | None:
    """Return words such that every matching line contains one; None if there are too many or only common ones."""
    return _found(pattern, _telling) or _found(pattern, _rare, _spellings)


def gates_of(pattern: ScanPattern) -> _Words | None:
    """Return such words that may be common; None if there are too many or only short ones."""
    return _found(pattern, _rare) or _found(pattern, _spelled, _spellings)


def _found(pattern: ScanPattern, judge: _Judge, spell: _Spell = _text) -> _Words | None:
    expression = pattern.expression.encode()
    tree = _plain(expression) if _LITERAL.fullmatch(expression) else parsed(expression)
    found = _best(tree[0][1][3] if _is_folded(tree) else tree, judge, spell)
    return found if found is not None and len(found) <= MOST_WORDS else None


def _ignores_case(pattern: ScanPattern) -> bool:
    return pattern.ignore_case or (
        pattern.expression.startswith("(?i:") and _is_folded(parsed(pattern.expression.encode()))
    )


def _is_folded(tree: Any) -> bool:
    """Whether a tree is one group in which case is ignored."""
    return len(tree) == 1 and tree[0][0] is sre.SUBPATTERN and bool(tree[0][1][1] & re.IGNORECASE)


def _plain(expression: bytes) -> list[tuple[Any, Any]]:
    """Return the tree of a plain text in scan form, which most patterns are, without the parser."""
    plain = _ESCAPE.sub(lambda escape: bytes((int(escape[1], 16),)), expression)
    return [(sre.LITERAL, byte) for byte in plain]


def _parts(word: bytes, ignore_case: bool) -> Iterator[_Word]:
    """Yield shorter words that find everything that a word finds."""
    for start in range(len(word)):
        for stop in range(start + LEAST, len(word) + 1):
            if stop - start < len(word):
                yield word[start:stop], ignore_case
            if not ignore_case:
                yield word[start:stop].lower(), True


def _best(items: _Items, judge: _Judge, spell: _Spell) -> _Words | None:
    """Return the most selective words of a sequence: one of its runs of characters, or one of each branch of a choice in it."""
    options: list[_Words] = []
    runs = _EMPTY
    for op, argument in _flat(items):
        texts = spell(op, argument)
        longer = _joined(runs, texts)
        if longer is None:
            options += [_joined(runs, _first(op, argument, spell)) or runs, *_options(op, argument, judge, spell)]
            longer = texts or _EMPTY
        runs = longer
    cut = (_without_parts(map(_cut, option)) for option in (*options, runs))
    value = _value if spell is _text else _value_of_many
    return max((option for option in cut if all(map(judge, option))), key=value, default=None)


def _first(op: Any, argument: Any, spell: _Spell) -> _Words | None:
    """Return what a part begins with that is repeated at least once, if that is a text or a character."""
    body = list(_flat(argument[2])) if op in REPEATS and argument[0] > 0 else []
    return spell(*body[0]) if len(body) == 1 else None


def _without_parts(words: Iterable[bytes]) -> _Words:
    """Return the words that contain no other of them."""
    found = frozenset(words)
    return frozenset([word for word in found if not any(other in word for other in found if other != word)])


def _joined(runs: _Words, more: _Words | None) -> _Words | None:
    """Return each run followed by each of the others; None if they are too many."""
    if more is None or len(runs) * len(more) > MOST_SPELLINGS:
        return None
    return frozenset([run + part for run in runs for part in more])


def _spellings(op: Any, argument: Any) -> _Words | None:
    """Return all texts that an item matches; None if they are not few."""
    if op is sre.IN:
        return _members(argument)
    if op is sre.BRANCH:
        branches = [_texts(branch) for branch in argument[1]]
        return None if None in branches else frozenset().union(*(branch or () for branch in branches))
    if op in REPEATS and (argument[0], argument[1]) == (0, 1):
        once = _texts(argument[2])
        return None if once is None else once | _EMPTY
    return _text(op, argument)


def _texts(items: _Items) -> _Words | None:
    """Return all texts that a sequence matches; None if they are not few."""
    runs: _Words | None = _EMPTY
    for op, argument in _flat(items):
        if runs is not None:
            runs = _joined(runs, _spellings(op, argument))
    return runs


def _members(items: Sequence[tuple[Any, Any]]) -> _Words | None:
    """Return the characters of a class; None if they are not few."""
    if items == _DIGITS:
        return frozenset(b"%d" % digit for digit in range(10))
    few = len(items) <= MOST_MEMBERS and all(op is sre.LITERAL for op, _ in items)
    return frozenset(bytes((byte,)) for _, byte in items) if few else None


def _options(op: Any, argument: Any, judge: _Judge, spell: _Spell) -> Iterator[_Words]:
    """Yield the words of a choice, or of a part repeated at least once."""
    if op is sre.BRANCH:
        branches = [_best(branch, judge, spell) for branch in argument[1]]
        known = [words for words in branches if words is not None]
        if len(known) == len(branches):
            yield frozenset().union(*known)
    elif op in REPEATS and argument[0] > 0 and (repeated := _best(argument[2], judge, spell)) is not None:
        yield repeated


def _flat(items: _Items) -> Iterator[tuple[Any, Any]]:
    """Yield the items of a sequence, each text as one, also where a parenthesis is in it."""
    text = bytearray()
    for op, argument in _opened(items):
        if op is sre.LITERAL:
            text.append(argument)
        elif op is not sre.AT:
            if text:
                yield sre.LITERAL, bytes(text)
                text = bytearray()
            yield op, argument
    if text:
        yield sre.LITERAL, bytes(text)


def _opened(items: _Items) -> Iterator[tuple[Any, Any]]:
    """Yield the items of a sequence without plain groups."""
    for op, argument in items:
        if op is sre.SUBPATTERN and not argument[1] and not argument[2]:
            yield from _opened(argument[3])
        elif op in REPEATS and argument[0] == argument[1] == 1:
            yield from _opened(argument[2])
        else:
            yield op, argument


def _cut(run: bytes) -> bytes:
    """Return the part of a run to search for: one with a rare end, unless it is itself common; rather at the run's end."""
    parts = [run[max(0, stop - LONGEST) : stop] for stop in range(len(run), min(ENOUGH, len(run)) - 1, -1)]
    rare = next((part for part in parts if not _common_ends(part) and _telling(part)), None)
    return rare or min(parts, key=lambda part: (not _telling(part), _common_ends(part)))


def _common_ends(word: bytes) -> int:
    """How common the end of a word is in recurring lines, from 0 to 3. The engine may look at it with or without its last byte."""
    text = word.lower().translate(_DIGIT)
    return 2 * (text[-_END:] in _COMMON_ENDS) + (text[-_END - 1 : -1] in _COMMON_ENDS)


def _ends(text: bytes) -> frozenset[bytes]:
    shown = text.translate(_DIGIT)
    return frozenset(shown[at : at + _END] for at in range(len(shown) - _END + 1))


_COMMON_ENDS = _ends(_RECURRING)


def _telling(word: bytes) -> bool:
    return len(word) >= LEAST and _letters(word) >= LEAST_LETTERS and word.strip().lower() not in _RECURRING


def _rare(word: bytes) -> bool:
    """Whether a shorter word may do, or one that recurs only in another case: recurring lines are kept in lower case."""
    shown = word.strip()
    return _long_enough(word) and not (shown == shown.lower() and shown in _RECURRING)


def _spelled(word: bytes) -> bool:
    """Whether enough of a word are letters: `.py:1` is on each line of some logs."""
    return len(word) >= SHORTEST and len(word.translate(None, _NO_LETTERS + b"0123456789")) >= FEWEST_LETTERS


def _long_enough(word: bytes) -> bool:
    return len(word) >= SHORTEST and _letters(word) >= FEWEST_LETTERS


def _letters(word: bytes) -> int:
    return len(word.translate(None, _NO_LETTERS))


def _value(words: _Words) -> tuple[float, list[bytes]]:
    """How selective words are: the length of the shortest, less for each further word and a common end; then any fixed order."""
    return _selectivity(words, 0.5), sorted(words)


def _value_of_many(words: _Words) -> tuple[float, list[bytes]]:
    """Likewise, of patterns that have no few selective words."""
    return _selectivity(words, 0.1), sorted(words)


def _selectivity(words: _Words, each: float) -> float:
    spellings = len({word.translate(_DIGIT) for word in words})
    length = min(ENOUGH, *map(len, words)) - each * (spellings - 1)
    return length - _COMMON_END * max(map(_common_ends, words))


def _searched(word: _Word, *, once: bool = False) -> ScanPattern:
    text, ignore_case = word
    return ScanPattern("".join(f"\\x{byte:02x}" for byte in text), ignore_case, once)
