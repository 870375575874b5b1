"""The parts of a rule's condition, and the patterns that it names."""

from __future__ import annotations

from collections.abc import Iterator

from kb.rulebase.rule import Absent, All, Any, Condition, Count, Name, Not, Ranks, Sequence


def walk(condition: Condition) -> Iterator[Condition]:
    """Yield a condition and all its parts."""
    yield condition
    if isinstance(condition, All | Any):
        for part in condition.parts:
            yield from walk(part)
    elif isinstance(condition, Not):
        yield from walk(condition.part)


def names(condition: Condition) -> frozenset[str]:
    """Return the patterns that a condition names."""
    found: set[str] = set()
    for part in walk(condition):
        if isinstance(part, Name):
            found.add(part.name)
        elif isinstance(part, Sequence):
            found.update(part.order)
        elif isinstance(part, Count | Ranks):
            found.add(part.of)
        elif isinstance(part, Absent):
            found.update((part.of, part.anchor))
    return frozenset(found)
