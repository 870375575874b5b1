"""The automaton of a regex: its characters as places, which of them can follow which, and its repeats (Glushkov's).

Parts that an engine reads in one way only count as one character. Bounded repeats above `FEW` become loops.
"""

from __future__ import annotations

from dataclasses import field

from kb.regex.syntax import (
    ALL,
    At,
    Atomic,
    Chars,
    Choice,
    Conditional,
    Group,
    Look,
    Node,
    Reference,
    Repeat,
    Sequential,
    nodes,
    nullable,
)
from kb.values import dataclass

FEW = 4  # times that a bounded repeat is written out
MOST_PLACES = 3_000  # characters of a regex, repeats written out
ENDLESS = 1 << 20  # times of a repeat without end
SEARCH = Repeat(Chars(ALL, ".", 0), 0, None, "lazy")
Ways = dict[int, int]


@dataclass(slots=True)
class _Part:
    """What a node contributes: ways to match nothing, and the places it can begin and end with (2: two ways or more)."""

    empty: int
    first: Ways = field(default_factory=dict)
    last: Ways = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Loop:
    """A repeat: its places, from `start` to before `stop`, and how many times it runs."""

    start: int
    stop: int
    times: int
    node: Repeat


class TooComplex(Exception):  # noqa: N818 - says what it is
    """Raised if a regex is too large to be judged."""


def _commits(node: Node) -> bool:
    return isinstance(node, Atomic) or (isinstance(node, Repeat) and node.kind == "possessive")


class Automaton:
    """The places of a regex, which places can follow which, and the loops."""

    def __init__(self, root: Node, once: bool) -> None:
        self.chars: list[int] = []
        self.follow: list[Ways] = []
        self.loops: list[Loop] = []
        self._groups = {node.number: node.body for node in nodes(root) if isinstance(node, Group)}
        self._open: set[int] = set()
        self.root = root
        search = _Part(1)
        if not once:  # the search for the first place is a loop over all characters
            search = self._char(ALL)
            self._link(search.last, search.first)
            self.loops.append(Loop(0, 1, ENDLESS, SEARCH))
        self._link(search.last, self._part(root).first)

    def _part(self, node: Node) -> _Part:  # noqa: PLR0911 - one return a kind of node
        if isinstance(node, Chars):
            return self._char(node.members)
        if isinstance(node, Sequential):
            return self._sequence(node.parts)
        if isinstance(node, Choice):
            return self._choice(node.branches)
        if _commits(node):
            return self._committed(node)
        if isinstance(node, Repeat):
            return self._repeat(node)
        if isinstance(node, Group):
            return self._part(node.body)
        if isinstance(node, Conditional):
            return self._choice((node.yes, node.no))
        if isinstance(node, Reference):
            return self._reference(node.number)
        return _Part(1)  # an anchor, a look-around: no characters

    def _char(self, members: int) -> _Part:
        if len(self.chars) >= MOST_PLACES:
            raise TooComplex
        place = len(self.chars)
        self.chars.append(members)
        self.follow.append({})
        return _Part(0, {place: 1}, {place: 1})

    def _committed(self, node: Node) -> _Part:
        """What an engine reads in one way only counts as one character that may be any of its own."""
        members = 0
        for inner in nodes(node):
            members |= inner.members if isinstance(inner, Chars) else 0
        part = self._char(members)
        return _Part(1, part.first, part.last) if nullable(node) else part

    def _sequence(self, parts: tuple[Node, ...]) -> _Part:
        whole = _Part(1)
        for part in parts:
            whole = self._joined(whole, self._part(part))
        return whole

    def _joined(self, left: _Part, right: _Part) -> _Part:
        self._link(left.last, right.first)
        first = _plus(left.first, right.first, left.empty)
        last = _plus(right.last, left.last, right.empty)
        return _Part(min(2, left.empty * right.empty), first, last)

    def _link(self, last: Ways, first: Ways) -> None:
        for place, ways in last.items():
            after = self.follow[place]
            for next_, more in first.items():
                after[next_] = min(2, after.get(next_, 0) + ways * more)

    def _choice(self, branches: tuple[Node, ...]) -> _Part:
        whole = _Part(0)
        for branch in branches:
            part = self._part(branch)
            whole = _Part(
                min(2, whole.empty + part.empty), _plus(whole.first, part.first, 1), _plus(whole.last, part.last, 1)
            )
        return whole

    def _repeat(self, node: Repeat) -> _Part:
        low, high = node.low, node.high
        if high is None:
            before = _Part(1)
            for _ in range(min(low - 1, FEW)):
                before = self._joined(before, self._part(node.body))
            return self._joined(before, self._loop(node, ENDLESS))
        if high > FEW and (high > low or not _fixed(node.body)):
            return self._loop(node, high)
        whole = _Part(1)
        for _ in range(min(low, FEW)):
            whole = self._joined(whole, self._part(node.body))
        return self._joined(whole, self._options(node.body, high - low)) if high > low else whole

    def _options(self, body: Node, times: int) -> _Part:
        """A body, and after it perhaps another, so many times: `(a(a(a)?)?)?`."""
        part = self._part(body)
        if times > 1:
            part = self._joined(part, self._options(body, times - 1))
        return _Part(min(2, part.empty + 1), part.first, part.last)

    def _loop(self, node: Repeat, times: int) -> _Part:
        start = len(self.chars)
        part = self._part(node.body)
        self._link(part.last, part.first)
        if node.low > 1 and nullable(node.body):
            self._link(part.last, part.first)  # any of the rounds may be the empty one
        if len(self.chars) > start:
            self.loops.append(Loop(start, len(self.chars), times, node))
        return part if node.low else _Part(min(2, part.empty + 1), part.first, part.last)

    def _reference(self, number: int) -> _Part:
        if number in self._open or number not in self._groups:
            return _Part(1)
        self._open.add(number)
        part = self._part(self._groups[number])
        self._open.discard(number)
        return part


def _plus(left: Ways, right: Ways, times: int) -> Ways:
    if not times:
        return left
    both = dict(left)
    for place, ways in right.items():
        both[place] = min(2, both.get(place, 0) + ways * times)
    return both


def _fixed(node: Node) -> bool:
    """Whether all matches of a node are equally long, as far as its form shows."""
    if isinstance(node, Repeat):
        return node.low == node.high and _fixed(node.body)
    if isinstance(node, Sequential):
        return all(map(_fixed, node.parts))
    if isinstance(node, Group | Atomic):
        return _fixed(node.body)
    return isinstance(node, Chars | At | Look) or (
        isinstance(node, Choice) and all(isinstance(branch, Chars) for branch in node.branches)
    )
