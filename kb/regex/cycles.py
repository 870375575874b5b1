"""The cycles of a graph of places: its strongly connected components that have an edge."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kb.regex.automaton import Ways


def cycles(follow: list[Ways]) -> list[frozenset[int]]:
    """Return the strongly connected components that have an edge (Kosaraju: in the order of ends, against the edges)."""
    before: list[list[int]] = [[] for _ in follow]
    for place, after in enumerate(follow):
        for next_ in after:
            before[next_].append(place)
    seen: set[int] = set()
    ends = [place for root in range(len(follow)) for place in _reached(root, follow, seen)]
    seen.clear()
    parts = (frozenset(_reached(root, before, seen)) for root in reversed(ends))
    return [part for part in parts if len(part) > 1 or any(place in follow[place] for place in part)]


def _reached(root: int, follow: Sequence[Iterable[int]], seen: set[int]) -> list[int]:
    """Return the places newly reached from one, in the order in which a search in depth leaves them."""
    if root in seen:
        return []
    seen.add(root)
    left, path = [], [(root, iter(follow[root]))]
    while path:
        place, after = path[-1]
        next_ = next((item for item in after if item not in seen), None)
        if next_ is None:
            left.append(place)
            path.pop()
        else:
            seen.add(next_)
            path.append((next_, iter(follow[next_])))
    return left
