"""Finds regexes that can take a backtracking engine exponential or polynomial time, before they are used.

The regex becomes an automaton of its characters (Glushkov's). It is exponential where a loop can read some text in two
ways, and polynomial of degree d where d loops one after another can read the same text, the search for the first place
counted as a loop (Weber and Seidl, 1991; Weideman et al., 2016, apply it to backtracking). Bounded repeats above `FEW`
count as loops too, since `(a{0,99}){0,99}` is as slow as `(a*)*` on any realistic line.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import prod

from kb.regex.automaton import ENDLESS, FEW, SEARCH, Automaton, Loop, TooComplex
from kb.regex.cycles import cycles
from kb.regex.parser import parse
from kb.regex.re_tree import parsed, simple_repeats
from kb.regex.syntax import (
    At,
    Atomic,
    Chars,
    Choice,
    Group,
    Look,
    Node,
    Reference,
    Repeat,
    Sequential,
    Tree,
    nodes,
    nullable,
    shown,
)
from kb.values import dataclass

MOST_PAIRS = 200_000  # pairs of places that are looked at
HARMLESS = (10**5, 10**8, 10**11, 10**14)  # ways of bounded repeats above which they count as one loop, two, …
MANY_COUNTED, MOST_COUNTED = 500, 2500  # characters on one way through a regex: what lint reports, what is refused
MANY = 12  # repeats and optional parts from which their ways are counted
MOST_KINDS = 128  # characters for which they are
_REMEMBERED = 4096  # regexes: a rule base is read, and then checked
QUADRATIC = 2  # what any search for something with a repeat may take
_Three = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Hazard:
    """A part of a regex that can take long.

    `degree`: the exponent of the time's growth with the text, the search included; None: exponential. `where`: the part;
    `why` and `instead` complete the message.
    """

    degree: int | None
    where: str
    why: str
    instead: str

    def __str__(self) -> str:
        """Describe the hazard in one line."""
        return f"{self.where[:120]!r} {self.why}: {self.instead}"


def hazards(pattern: str | bytes, ignore_case: bool = False, *, whole: bool = False) -> tuple[Hazard, ...]:
    """Return the parts of a regex that can be slow; none if the time grows at most with the square of the text's length.

    `whole`: the regex is matched against whole texts instead of searched for in them.

    Raises:
        re.error: the regex is invalid; also OverflowError, RecursionError and ValueError from Python's own parser.
    """
    if found_before := exponential_parts(pattern, ignore_case):
        return found_before
    tree = parse(pattern, ignore_case)
    return tuple(
        found
        for root in _roots(tree)
        for found in (
            None if _at_most_quadratic(root) else _Judge(Automaton(root, _once(tree, whole))).polynomial(),
            _looking(root),
            *_counting(root, MANY_COUNTED),
        )
        if found is not None
    )


def _at_most_quadratic(root: Node) -> bool:
    """Whether so few parts repeat, none within another, that all their loops together take no longer than any search's."""
    endless, ways = 1, 1  # the search for the first place
    for node in nodes(root):
        if isinstance(node, Reference):
            return False
        if isinstance(node, Repeat):
            if any(isinstance(inner, Repeat) for inner in nodes(node.body)):
                return False
            if node.high is None:
                endless += 1
            elif node.high > FEW:
                ways *= node.high
    return _exponent(endless, ways) <= QUADRATIC


def _counting(root: Node, limit: int) -> list[Hazard]:
    """Bounded repeats that count far: even RE2 then follows as many states at once, byte by byte."""
    if (counted := _counted(root)) <= limit:
        return []
    degree = None if limit == MOST_COUNTED else QUADRATIC + 1
    why = f"counts up to {counted} characters, more than {limit}, which is slow in every engine"
    return [Hazard(degree, shown(root), why, "write smaller bounds, or * with a class that ends it ([^,]*)")]


def _counted(node: Node, inside: bool = False) -> int:
    """The characters that bounded repeats write out, on the way through a regex that has most of them."""
    if isinstance(node, Chars):
        return int(inside)
    if isinstance(node, Sequential):
        return sum(_counted(part, inside) for part in node.parts)
    if isinstance(node, Choice):
        return max((_counted(branch, inside) for branch in node.branches), default=0)
    if isinstance(node, Repeat):
        times = max(1, node.low) if node.high is None else node.high
        return times * _counted(node.body, inside or times > FEW)
    return _counted(node.body, inside) if isinstance(node, Group | Atomic) else 0


def _looking(root: Node) -> Hazard | None:
    """A look-around over the rest of the line that is tried again in each round of a repeat."""
    for repeat in nodes(root):
        if isinstance(repeat, Repeat) and (repeat.high is None or repeat.high > FEW):
            for look in nodes(repeat.body):
                if isinstance(look, Look) and any(map(_endless, nodes(look.body))):
                    why = "looks over the rest of the line in each round, so time grows with length^3"
                    return Hazard(QUADRATIC + 1, shown(repeat), why, "look once, behind ^: ^(?!.*word)")
    return None


def _endless(node: Node) -> bool:
    return isinstance(node, Repeat) and node.high is None


def growth(pattern: str | bytes, ignore_case: bool = False, *, whole: bool = False) -> int | None:
    """Return the exponent with which the time of a search grows with the text; None: exponential."""
    tree = parse(pattern, ignore_case)
    if exponential(tree):
        return None
    return max(_Judge(Automaton(root, _once(tree, whole))).degree() for root in _roots(tree))


def exponential(tree: Tree) -> tuple[Hazard, ...]:
    """Return the exponential parts of a parsed regex."""
    found = _counting(tree.root, MOST_COUNTED)
    for root in _roots(tree):
        if not _worth_judging(root):
            continue
        try:
            found += _Judge(Automaton(root, once=True)).doubled()
        except TooComplex:
            found.append(
                Hazard(
                    None, shown(root), "is too large to be judged", "write fewer or smaller repeats and alternatives"
                )
            )
    return tuple(dict.fromkeys(found))


@lru_cache(maxsize=_REMEMBERED)
def exponential_parts(pattern: str | bytes, ignore_case: bool = False) -> tuple[Hazard, ...]:
    """Return the exponential parts of a regex. Most regexes show at a glance that they have none.

    Raises:
        re.error: the regex is invalid; also OverflowError, RecursionError and ValueError from Python's own parser.
    """
    repeats = simple_repeats(parsed(pattern, ignore_case))
    if repeats is not None and len(repeats) < MANY and sum(repeats) <= MOST_COUNTED:
        return ()
    return exponential(parse(pattern, ignore_case))


def _worth_judging(root: Node) -> bool:
    """Whether something more than single characters repeats, or many parts are optional."""
    repeats = [node for node in nodes(root) if isinstance(node, Repeat)]
    return len(repeats) >= MANY or any(not isinstance(node.body, Chars) for node in repeats)


def _roots(tree: Tree) -> tuple[Node, ...]:
    """The regex, and what an engine runs by itself within it."""
    found: list[Node] = [tree.root]
    for node in nodes(tree.root):
        if isinstance(node, Look | Atomic):
            found.append(node.body)
        elif isinstance(node, Repeat) and node.kind == "possessive":
            found.append(Repeat(node.body, node.low, node.high, "greedy"))
    return tuple(found)


def _once(tree: Tree, whole: bool) -> bool:
    """Whether the regex is tried at one place of a text only."""
    return whole or _anchored(tree.root)


def _anchored(node: Node) -> bool:
    """Whether a match can begin at one place only."""
    if isinstance(node, At):
        return node.place == "start"
    if isinstance(node, Sequential):
        for part in node.parts:
            if _anchored(part):
                return True
            if not isinstance(part, At | Look):
                return False
        return False
    if isinstance(node, Choice):
        return all(map(_anchored, node.branches))
    return isinstance(node, Group | Atomic) and _anchored(node.body)


class _Judge:
    """Looks for loops of one automaton that can read the same text in several ways."""

    def __init__(self, automaton: Automaton) -> None:
        self._a = automaton
        self._left = MOST_PAIRS
        self._cycles = cycles(automaton.follow)

    def doubled(self) -> list[Hazard]:
        """The loops that can read a text in two ways, or options in a row that can."""
        return [found for cycle in self._cycles if (found := self._doubled(cycle)) is not None] or self._options()

    def _options(self) -> list[Hazard]:
        """Options written one after another, as in `a?a?a?`: how many ways lead through places with the same character?"""
        follow, chars = self._a.follow, self._a.chars
        symbols = {(members & -members).bit_length() - 1 for members in set(chars) if members}
        for symbol in sorted(symbols | set(b"a0 x."))[:MOST_KINDS]:
            ways = [0] * len(chars)
            for place in range(len(chars) - 1, -1, -1):
                if chars[place] >> symbol & 1:
                    later = ((after, times) for after, times in follow[place].items() if after > place)
                    ways[place] = 1 + sum(times * ways[after] for after, times in later)
            if max(ways, default=0) > HARMLESS[0] * len(chars):
                why = (
                    "has so many optional parts in a row that a backtracking engine can take forever on a hostile line"
                )
                return [Hazard(None, shown(self._a.root), why, "write one bounded repeat, as in a{20,40}")]
        return []

    def polynomial(self) -> Hazard | None:
        """The chain of loops that can share a text, if it is longer than any search's."""
        chain = self._chain()
        degree = _degree(chain)
        if degree <= QUADRATIC:
            return None
        return Hazard(
            degree,
            " … ".join(shown(loop.node) for loop in chain if loop.node is not SEARCH),
            f"can share the same text in so many ways that a backtracking engine needs time in length^{degree}",
            "exclude from each repeat the character that ends it ([^,]* before a comma), or bound it ({0,80})",
        )

    def degree(self) -> int:
        """The exponent of the time's growth with the text."""
        return max(1, _degree(self._chain()))

    # -- exponential: a cycle that reads a text in two ways

    def _doubled(self, cycle: frozenset[int]) -> Hazard | None:
        follow = self._a.follow
        twice = any(ways > 1 and after in cycle for place in cycle for after, ways in follow[place].items())
        loop = self._around(cycle)
        if loop is None or not (twice or self._diverges(cycle)):
            return None
        inner = [
            item for item in self._a.loops if loop.start <= item.start and item.stop <= loop.stop and item is not loop
        ]
        longest = max((item.times for item in inner), default=2)
        if loop.times < ENDLESS and longest ** min(loop.times, 64) <= HARMLESS[0]:
            return None
        why = "can read the same text in two ways in each round, so a backtracking engine can take forever on a hostile line"
        return Hazard(None, shown(loop.node), why, _instead(loop.node))

    def _diverges(self, cycle: frozenset[int]) -> bool:
        """Whether two different ways through the cycle read the same text and meet again."""
        follow, chars = self._a.follow, self._a.chars
        inside = {place: [after for after in follow[place] if after in cycle] for place in cycle}
        before: dict[tuple[int, int], list[tuple[int, int]]] = {}
        seen: set[tuple[int, int]] = set()
        pending = [(place, place) for place in cycle]
        meeting: list[tuple[int, int]] = []
        while pending:
            pair = pending.pop()
            left, right = pair
            for state in inside[left]:
                for two in inside[right]:
                    if state == two and left == right:
                        continue
                    if not chars[state] & chars[two]:
                        continue
                    self._spend()
                    to = (state, two) if state <= two else (two, state)
                    if state == two:
                        meeting.append(pair)
                        continue
                    before.setdefault(to, []).append(pair)
                    if to not in seen:
                        seen.add(to)
                        pending.append(to)
        return any(left != right for left, right in meeting)

    def _spend(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise TooComplex

    def _around(self, cycle: frozenset[int]) -> Loop | None:
        low, high = min(cycle), max(cycle)
        around = [loop for loop in self._a.loops if loop.start <= low and high < loop.stop]
        return min(reversed(around), key=lambda loop: loop.stop - loop.start, default=None)

    # -- polynomial: cycles one after another that read the same text

    def _chain(self) -> list[Loop]:
        """The costliest chain of loops, each able to read what the one before reads."""
        found = [(cycle, loop) for cycle in sorted(self._cycles, key=min) if (loop := self._around(cycle)) is not None]
        chains: list[list[Loop]] = []
        for index, (cycle, loop) in enumerate(found):
            best = [loop]
            for earlier in range(index):
                longer = [*chains[earlier], loop]
                if _cost(longer) > _cost(best) and self._both(found[earlier][0], cycle):
                    best = longer
            chains.append(best)
        return max(chains, key=_cost, default=[])

    def _both(self, earlier: frozenset[int], later: frozenset[int]) -> bool:
        """Whether a text leads from a place of a cycle to itself, from there to a later cycle, and there to itself."""
        return any(self._leads((one, one, two), (one, two, two), earlier, later) for one in earlier for two in later)

    def _leads(self, start: _Three, goal: _Three, earlier: frozenset[int], later: frozenset[int]) -> bool:
        seen, pending = {start}, [start]
        while pending:
            for reached in self._steps(pending.pop(), earlier, later):
                self._spend()
                if reached == goal:
                    return True
                if reached not in seen:
                    seen.add(reached)
                    pending.append(reached)
        return False

    def _steps(self, place: _Three, earlier: frozenset[int], later: frozenset[int]) -> Iterator[_Three]:
        """Where one character leads: the first stays in its cycle, the last in its own, the middle goes from one to the other."""
        follow, chars = self._a.follow, self._a.chars
        for left in earlier.intersection(follow[place[0]]):
            for right in later.intersection(follow[place[2]]):
                common = chars[left] & chars[right]
                if common:
                    for middle in follow[place[1]]:
                        if common & chars[middle]:
                            yield left, middle, right


def _cost(chain: list[Loop]) -> tuple[int, int]:
    return _degree(chain), len(chain)


def _degree(chain: list[Loop]) -> int:
    endless = sum(loop.times == ENDLESS for loop in chain)
    ways = prod(loop.times for loop in chain if loop.times < ENDLESS)
    return _exponent(endless, ways)


def _exponent(endless: int, ways: int) -> int:
    """The exponent of the time that endless loops take, and bounded ones with so many ways through all of them."""
    return endless + sum(ways > limit for limit in HARMLESS)


def _instead(node: Repeat) -> str:
    body = node.body.body if isinstance(node.body, Group) else node.body
    if nullable(body):
        return "let no round match nothing: drop the inner `*` or `?`"
    if isinstance(body, Choice):
        return "let no two alternatives begin with the same character"
    if isinstance(body, Repeat):
        return "drop one of the two repeats"
    return "begin or end each round with a character that the rest of it cannot match, as in (?:[a-z]+,)*"
