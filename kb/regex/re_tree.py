"""The parse tree of Python's `re`: its names, a parser that remembers the last regexes, and walks over the tree.

No public library returns this tree. The modules behind it have had one of these two names since Python 2.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as sre_parse  # type: ignore[attr-defined]
from typing import Any

__all__ = ["CHARACTERS", "REPEATS", "Items", "children", "parsed", "simple_repeats", "sre", "strictly_parsed", "walk"]

REPEATS = (sre.MAX_REPEAT, sre.MIN_REPEAT)
CHARACTERS = (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN)
_SIMPLE = frozenset((*CHARACTERS, sre.AT, sre.BRANCH))
_MOST_GROUPS = 100  # more may be nested more deeply than kb.regex.parser can follow
_REMEMBERED = 256  # more than one rule has: all checks of a rule's regex need its tree

Items = Iterable[tuple[Any, Any]]


def parsed(pattern: str | bytes, ignore_case: bool = False) -> Any:
    """Return the tree of a regex. It is shared and must not be changed. What `re` only warns about is accepted.

    Raises:
        re.error: the regex is invalid; also OverflowError, RecursionError and ValueError from Python's own parser.
    """
    return _parsed(pattern, ignore_case)[0]


def strictly_parsed(pattern: str | bytes, ignore_case: bool = False) -> Any:
    """Return the tree of a regex like `parsed`.

    Raises:
        Warning: `re` warns about the regex; for example, a group's name that is not ASCII. Also what `parsed` raises.
    """
    tree, warned = _parsed(pattern, ignore_case)
    if warned:
        raise warned[0].with_traceback(None)
    return tree


@lru_cache(maxsize=_REMEMBERED)
def _parsed(pattern: str | bytes, ignore_case: bool) -> tuple[Any, tuple[Warning, ...]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tree = sre_parse.parse(pattern, re.IGNORECASE if ignore_case else 0)
    return tree, tuple(item.message for item in caught if isinstance(item.message, Warning))


def children(op: Any, argument: Any) -> Sequence[Any]:  # noqa: PLR0911 - one return a kind of node
    """Return the sequences of items directly within an item."""
    if op in REPEATS or op is sre.POSSESSIVE_REPEAT:
        return (argument[2],)
    if op is sre.SUBPATTERN:
        return (argument[3],)
    if op is sre.BRANCH:
        return list(argument[1])
    if op in (sre.ASSERT, sre.ASSERT_NOT):
        return (argument[1],)
    if op is sre.ATOMIC_GROUP:
        return (argument,)
    if op is sre.GROUPREF_EXISTS:
        return (argument[1], argument[2] or ())
    return ()


def walk(items: Items) -> Iterator[tuple[Any, Any]]:
    """Yield all items of a tree, each before the items within it."""
    for op, argument in items:
        yield op, argument
        for child in children(op, argument):
            yield from walk(child)


def simple_repeats(items: Items) -> list[int] | None:
    """Return how often each repeat repeats, at least, if it is endless. None: more than single characters repeat."""
    found: list[int] = []
    groups = 0
    for op, argument in walk(items):
        if op in REPEATS:
            low, high, body = argument
            if len(body) != 1 or body[0][0] not in CHARACTERS:
                return None
            found.append(max(1, low) if high is sre.MAXREPEAT else high)
        elif op is sre.SUBPATTERN:
            groups += 1
        elif op not in _SIMPLE:
            return None
    return found if groups <= _MOST_GROUPS else None
