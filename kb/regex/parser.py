"""Parses a Python regex into the tree of kb.regex.syntax: the tree of `re`, its classes turned into sets of symbols.

For bytes the alphabet is the byte. For text it is ASCII, one symbol for each kind of other character that `re` tells
apart (digits, spaces, other letters, the rest, and those four that fold to an ASCII letter), and one for each other
character that the pattern itself names. So a class has the same members here as in `re`, whatever engine searches.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from functools import lru_cache
from typing import Any

from kb.regex.re_tree import children, parsed, sre
from kb.regex.syntax import (
    At,
    Atomic,
    Chars,
    Choice,
    Conditional,
    Group,
    Look,
    Node,
    Place,
    Reference,
    Repeat,
    Sequential,
    Tree,
)
from kb.values import dataclass

MOST_KNOWN = 10_000  # characters that are remembered: a hostile text has a million
_DIGIT, _SPACE, _WORD, _OTHER = 0x80, 0x81, 0x82, 0x83
_KINDS = {_DIGIT: "\U0001e2f0", _SPACE: "\u205f", _WORD: "\U0001e100", _OTHER: "\U0001d000"}  # a rare example of each
_FOLDED = {0x84: "\u0130", 0x85: "\u0131", 0x86: "\u017f", 0x87: "\u212a"}  # they fold to i, i, s and k
_FIRST_NAMED = 0x88
_FOLD, _LINES, _ASCII = int(re.IGNORECASE), int(re.MULTILINE), int(re.ASCII)  # numbers are faster than flags
_LOCALE, _DOT_ALL = int(re.LOCALE), int(re.DOTALL)
_FOLDED_TO = frozenset(b"iIsSkK")
_OF_CLASSES = int(re.IGNORECASE | re.DOTALL | re.ASCII | re.LOCALE)
_CATEGORIES = {
    sre.CATEGORY_DIGIT: r"\d",
    sre.CATEGORY_NOT_DIGIT: r"\D",
    sre.CATEGORY_SPACE: r"\s",
    sre.CATEGORY_NOT_SPACE: r"\S",
    sre.CATEGORY_WORD: r"\w",
    sre.CATEGORY_NOT_WORD: r"\W",
}
_PLACES = {
    sre.AT_BEGINNING: "start",
    sre.AT_BEGINNING_STRING: "start",
    sre.AT_END: "end or last newline",
    sre.AT_END_STRING: "end",
    sre.AT_BOUNDARY: "boundary",
    sre.AT_NON_BOUNDARY: "no boundary",
}
_LINE_PLACES = {sre.AT_BEGINNING: "line start", sre.AT_END: "line end"}


@dataclass(slots=True)
class _Alphabet:
    """The symbols of one pattern, with an example of each."""

    text: bool
    named: dict[str, int] = field(default_factory=dict)
    foreign: bool = False

    def members(self, op: Any, argument: Any, source: str, flags: int) -> int:
        """Return the symbols that a regex of one character matches, given as an item of the tree and as its source."""
        counted = _counted(op, argument, flags, self.text)
        found = _members(source, flags, self.text) if counted is None else counted
        if self.named:
            matches = member_test(source, flags, text=True)
            found |= sum(1 << symbol for char, symbol in self.named.items() if matches(char))
        return found


def _counted(op: Any, argument: Any, flags: int, text: bool) -> int | None:
    """Return the symbols of a plain class without compiling it; None if only `re` knows them."""
    if flags & _LOCALE:
        return None
    everything = (1 << (_FIRST_NAMED if text else 256)) - 1
    if op is sre.ANY:
        return everything if flags & _DOT_ALL else everything ^ 1 << 10
    items = argument if op is sre.IN else [(sre.LITERAL, argument)]
    found = 0
    for kind, value in items:
        more = 0 if kind is sre.NEGATE else _of_item(kind, value, flags, text)
        if more is None:
            return None
        found |= more
    negated: bool = op is sre.NOT_LITERAL or items[0][0] is sre.NEGATE
    return everything ^ found if negated else found


def _of_item(kind: Any, value: Any, flags: int, text: bool) -> int | None:
    if kind is sre.CATEGORY:
        return _members(_CATEGORIES[value], flags, text)
    low: int
    high: int
    low, high = value if kind is sre.RANGE else (value, value)
    if text and high >= _DIGIT:
        return None
    if not flags & _FOLD:
        return (2 << high) - (1 << low)
    if low != high or (text and low in _FOLDED_TO):
        return None
    letter = bytes((low,))
    return 1 << letter.lower()[0] | 1 << letter.upper()[0]


@lru_cache(maxsize=4096)
def _members(source: str, flags: int, text: bool) -> int:
    """Return the matching symbols, using a single search with `re` itself."""
    if text:
        every = "".join(map(chr, range(128))) + "".join((_KINDS | _FOLDED).values())
        return sum(1 << found.start() for found in re.compile(source, flags).finditer(every))
    return sum(1 << found.start() for found in re.compile(source.encode("latin-1"), flags).finditer(bytes(range(256))))


def member_test(source: str, flags: int, *, text: bool) -> Callable[[Any], bool]:
    """Return the test of one character (one-letter text, or a byte as a number) for a class."""
    if text:
        match = re.compile(source, flags).fullmatch
        return lambda symbol: match(symbol) is not None
    match_byte = re.compile(source.encode("latin-1"), flags).fullmatch
    return lambda symbol: match_byte(bytes((symbol,))) is not None


def parse(pattern: str | bytes, ignore_case: bool = False) -> Tree:
    """Parse a regex.

    Raises:
        re.error: the regex is invalid; also OverflowError, RecursionError and ValueError from Python's own parser.
    """
    tree = parsed(pattern, ignore_case)
    text = isinstance(pattern, str)
    state = tree.state
    alphabet = _Alphabet(text)
    if text and not (pattern.isascii() and "\\" not in pattern):
        _name(alphabet, tree, int(state.flags))
    root = _Reader(alphabet).sequence(tree, int(state.flags))
    return Tree(root, text, state.groups - 1, dict(state.groupdict), alphabet.named, alphabet.foreign)


def encoded(text: str, named: Mapping[str, int]) -> bytes:
    """Return a text as symbols, one byte a character, so that places in both are the same."""
    if text.isascii():
        return text.encode()
    return text.translate(_Symbols(named) if named else _PLAIN).encode("latin-1")


class _Symbols(dict[int, int]):
    """Character → symbol, filled as characters come."""

    def __init__(self, named: Mapping[str, int]) -> None:
        super().__init__({ord(char): symbol for symbol, char in _FOLDED.items()})
        self.update({ord(char): symbol for char, symbol in named.items()})

    def __missing__(self, code: int) -> int:
        char = chr(code)
        if code < 128:
            symbol = code
        elif char.isdecimal():
            symbol = _DIGIT
        else:
            symbol = _WORD if char.isalnum() else _SPACE if char.isspace() else _OTHER
        if len(self) < MOST_KNOWN:
            self[code] = symbol
        return symbol


_PLAIN = _Symbols({})


def _name(alphabet: _Alphabet, items: Iterable[tuple[Any, Any]], flags: int) -> None:
    """Give each other character of the pattern a symbol of its own; where that cannot be exact, call it foreign."""
    named: set[str] = set()
    for low, high, flagged in _ranges(items, flags):
        if high >= 128:
            alphabet.foreign |= bool(flagged & _FOLD) or low != high
            named.add(chr(low))
    named -= set(_FOLDED.values())
    if len(named) > 256 - _FIRST_NAMED or not named.isdisjoint(_KINDS.values()):
        alphabet.foreign = True
    elif not alphabet.foreign:
        alphabet.named = {char: _FIRST_NAMED + index for index, char in enumerate(sorted(named))}


def _ranges(items: Iterable[tuple[Any, Any]], flags: int) -> Iterator[tuple[int, int, int]]:
    for op, argument in items:
        if op in (sre.LITERAL, sre.NOT_LITERAL):
            yield argument, argument, flags
        elif op is sre.RANGE:
            yield *argument, flags
        elif op is sre.IN:
            yield from _ranges(argument, flags)
        elif op is sre.SUBPATTERN:
            yield from _ranges(argument[3], (flags | argument[1]) & ~argument[2])
        else:
            for child in children(op, argument):
                yield from _ranges(child, flags)


class _Reader:
    """Converts the tree of `re` to a tree of kb.regex.syntax."""

    def __init__(self, alphabet: _Alphabet) -> None:
        self._alphabet = alphabet

    def sequence(self, items: Iterable[tuple[Any, Any]], flags: int) -> Node:
        parts = tuple(self.item(op, argument, flags) for op, argument in items)
        return parts[0] if len(parts) == 1 else Sequential(parts)

    def item(self, op: Any, argument: Any, flags: int) -> Node:  # noqa: PLR0911 - one return a kind of node
        if op in (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN):
            return self.chars(op, argument, flags)
        if op is sre.BRANCH:
            return Choice(tuple(self.sequence(branch, flags) for branch in argument[1]))
        if op is sre.SUBPATTERN:
            number, add, remove, body = argument
            inner = self.sequence(body, (flags | add) & ~remove)
            return inner if number is None else Group(number, inner)
        if op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            low, high, body = argument
            kind: Any = {sre.MAX_REPEAT: "greedy", sre.MIN_REPEAT: "lazy"}.get(op, "possessive")
            return Repeat(self.sequence(body, flags), low, None if high is sre.MAXREPEAT else high, kind)
        if op in (sre.ASSERT, sre.ASSERT_NOT):
            direction, body = argument
            width = body.getwidth()[0] if direction < 0 else None
            return Look(self.sequence(body, flags), op is sre.ASSERT_NOT, width)
        if op is sre.ATOMIC_GROUP:
            return Atomic(self.sequence(argument, flags))
        if op is sre.GROUPREF:
            return Reference(argument, bool(flags & _FOLD))
        if op is sre.GROUPREF_EXISTS:
            number, yes, no = argument
            return Conditional(number, self.sequence(yes, flags), self.sequence(no or (), flags))
        if op is sre.AT:
            return At(self.place(argument, flags))
        return Look(Sequential(()), negative=True, width=None)  # FAILURE, of an empty negative look-ahead

    def place(self, where: Any, flags: int) -> Place:
        if flags & _LINES and where in _LINE_PLACES:
            return _LINE_PLACES[where]
        plain = flags & _ASCII or not self._alphabet.text
        return f"ascii {_PLACES[where]}" if plain and "boundary" in _PLACES[where] else _PLACES[where]

    def chars(self, op: Any, argument: Any, flags: int) -> Chars:
        kept = flags & _OF_CLASSES
        if op is sre.LITERAL and not kept & _FOLD and argument < 128:
            return _literal(argument)
        source = _source(op, argument)
        return Chars(self._alphabet.members(op, argument, source, kept), source, kept)


@lru_cache(maxsize=128)
def _literal(code: int) -> Chars:
    return Chars(1 << code, _escaped(code), 0)


def _source(op: Any, argument: Any) -> str:
    if op is sre.ANY:
        return "."
    if op is sre.LITERAL:
        return _escaped(argument)
    if op is sre.NOT_LITERAL:
        return f"[^{_escaped(argument)}]"
    if len(argument) == 1 and argument[0][0] is sre.CATEGORY:
        return _CATEGORIES[argument[0][1]]
    return f"[{''.join(_inside(item, value) for item, value in argument)}]"


def _inside(op: Any, argument: Any) -> str:
    if op is sre.NEGATE:
        return "^"
    if op is sre.RANGE:
        return f"{_escaped(argument[0])}-{_escaped(argument[1])}"
    return _CATEGORIES[argument] if op is sre.CATEGORY else _escaped(argument)


def _escaped(code: int) -> str:
    if 0x20 <= code < 0x7F:
        return chr(code) if chr(code).isalnum() or chr(code) in " _,;:<>=@%/\"'`!" else "\\" + chr(code)
    if code < 256:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
