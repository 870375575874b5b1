"""The named groups of a regex that hold text in every match."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Any

from kb.regex.re_tree import REPEATS, Items, parsed, sre


def sure_groups(pattern: str, ignore_case: bool = False) -> frozenset[str]:
    """Return the names of the groups that take part in every match, with at least one character.

    Raises:
        re.error: the regex is invalid; also what `kb.regex.re_tree.parsed` raises.
    """
    tree = parsed(pattern, ignore_case)
    names = {number: name for name, number in tree.state.groupdict.items()}
    return frozenset(names[number] for number in _within(tree) if number in names)


def _within(items: Items) -> frozenset[int]:
    return frozenset(number for op, argument in items for number in _of(op, argument))


def _of(op: Any, argument: Any) -> Iterator[int]:
    """Yield the groups that an item always fills."""
    if op is sre.SUBPATTERN:
        number, _, _, body = argument
        if number is not None and body.getwidth()[0] > 0:
            yield number
        yield from _within(body)
    elif op is sre.ATOMIC_GROUP:
        yield from _within(argument)
    elif op is sre.BRANCH:
        yield from reduce(frozenset.intersection, map(_within, argument[1]))
    elif op in REPEATS or op is sre.POSSESSIVE_REPEAT:
        low, _, body = argument
        if low > 0:
            yield from _within(body)
