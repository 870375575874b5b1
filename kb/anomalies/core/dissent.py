"""Finds the rank whose value differs where all others print the same one: a checksum, a setting, a shared count.

Compared are lines that nearly all ranks print, each with the others' lines of the same step, as the first number that rises tells it. A
value counts as common only if all ranks agreed on it before. Where lines come once, as those of a start, a good run must show that no
rank is different by design, or the rank must not be the first or the last one.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from kb.anomalies.core.odd_words import odd_words
from kb.anomalies.core.run import LineRef, RunEvent, RunProfile
from kb.anomalies.core.severity_words import is_body, is_consequence, skeleton
from kb.anomalies.core.stamps import STAMPS

FEWEST_RANKS, MOST_RANKS = 4, 512  # compared; more would cost seconds
AGREED = 2  # steps at which all ranks printed the same before
ONCE = 2  # lines of a rank up to which they are those of a start
MOST_VALUES = 12
_Line = tuple[LineRef, list[str]]  # a line with its values
_VALUE = re.compile(r"(?<![\w.+-])[-+]?(?:\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|(?=[0-9a-f]*\d)[0-9a-f]{4,64})(?![\w.]*\w)")
_PLACES = re.compile(r"<\*>|(?<![\w<*])[-+.\w]*\d[-+.\w]*")


@dataclass(frozen=True, slots=True)
class Dissent:
    """A rank whose value differs, the value of all others, and the first line that shows it."""

    node: str
    own: str
    usual: str
    spot: LineRef

    @property
    def why(self) -> str:
        """What differs, in words."""
        if self.own and self.usual:
            return f"{self.own} here, {self.usual} on all others"
        return f'only here it says "{self.own}"' if self.own else f'all others say "{self.usual}"'


def dissenting(run: RunProfile, apart: frozenset[tuple[str, ...]] | None = None) -> Dissent | None:
    """The one rank whose value differs from all others', with the first line that shows it.

    `apart`: by their words the lines in which one rank of a good run differs; None if there is no good run.
    """
    ranks = _ranks(run)
    found = []
    for words, lines in _alike(run, ranks).items():
        odd = _dissent(lines, ranks, usual=apart is not None and words in apart, compared=apart is not None)
        if odd is not None:
            found.append(odd)
    if apart is not None and FEWEST_RANKS <= len(ranks) <= MOST_RANKS:  # else it may be so by design
        told = odd_words(run, ranks)
        found += [Dissent(node, own, usual, spot) for words, node, own, usual, spot in told if words not in apart]
    return min(found, key=lambda odd: odd.spot.order, default=None)


def lines_apart(run: RunProfile) -> frozenset[tuple[str, ...]]:
    """The lines, by their words, in which one rank of a good run differs."""
    ranks = _ranks(run)
    found = {words for words, lines in _alike(run, ranks).items() if _dissent(lines, ranks, usual=False, compared=True)}
    if FEWEST_RANKS <= len(ranks) <= MOST_RANKS:
        found |= {words for words, *_ in odd_words(run, ranks)}
    return frozenset(found)


def _ranks(run: RunProfile) -> tuple[str, ...]:
    return tuple(sorted(run.ranks))


def _alike(run: RunProfile, ranks: Sequence[str]) -> Mapping[tuple[str, ...], Sequence[LineRef]]:
    """By the words of an event the lines that are kept of all such events, if all ranks print them."""
    if not FEWEST_RANKS <= len(ranks) <= MOST_RANKS:
        return {}
    events: dict[tuple[str, ...], list[RunEvent]] = defaultdict(list)
    for event in sorted(run.events.values(), key=lambda item: item.id):
        if not is_body(event.text) and not is_consequence(event.text):
            events[_words(event.text)].append(event)
    found = {}
    for words, several in events.items():
        heard = {node for event in several for node in event.nodes}
        if words and heard == set(ranks):
            spots = [
                spot
                for event in several
                for node, seen in event.nodes.items()
                for spot in seen.spots
                if spot.node == node
            ]
            found[words] = sorted(spots, key=lambda spot: spot.order)
    return found


def _words(text: str) -> tuple[str, ...]:
    """The words of a template without any that have digits, as hexadecimal values do."""
    return skeleton(_PLACES.sub(" ", text))


def _dissent(lines: Sequence[LineRef], ranks: Sequence[str], *, usual: bool, compared: bool) -> Dissent | None:
    told = [(spot, values_of(spot.text)) for spot in lines]
    width = Counter(len(values) for _, values in told).most_common(1)[0][0]
    of_rank: dict[str, list[_Line]] = {rank: [] for rank in ranks}
    for spot, values in told:
        if len(values) == width:
            of_rank[spot.node].append((spot, values))
    if usual or not all(of_rank.values()):
        return None
    if max(map(len, of_rank.values())) <= ONCE:
        return _once(of_rank, width, compared=compared)
    for key in range(width):
        if all(_rises([values[key] for _, values in several]) for several in of_rank.values()):
            rows = _rows(of_rank, key)
            for place in range(width) if len(rows) > AGREED else ():
                odd = _first_apart(
                    [{rank: (spot, values[place]) for rank, (spot, values) in row.items()} for row in rows]
                )
                if odd is not None:
                    return odd
    return None


def _rows(of_rank: Mapping[str, Sequence[_Line]], key: int) -> list[Mapping[str, _Line]]:
    """The lines of each step that all ranks printed, by the number that counts the steps."""
    steps: dict[str, dict[str, _Line]] = defaultdict(dict)
    for rank, several in of_rank.items():
        for spot, values in several:
            steps[values[key]][rank] = spot, values
    return [steps[step] for step in sorted(steps, key=int) if len(steps[step]) == len(of_rank)]


def _once(of_rank: Mapping[str, Sequence[_Line]], width: int, *, compared: bool) -> Dissent | None:
    """The rank whose first line has a value that no other's has, which all are the same."""
    edges = {min(of_rank, key=_number), max(of_rank, key=_number)}
    for place in range(width):
        odd = _apart({rank: (told[0][0], told[0][1][place]) for rank, told in of_rank.items()})
        if odd is not None and (compared or odd.node not in edges):
            return odd
    return None


def _first_apart(rows: Sequence[Mapping[str, tuple[LineRef, str]]]) -> Dissent | None:
    """The first dissent after all agreed, if it is always the same rank's and holds until the end."""
    told = [_apart(row) for row in rows]
    agreed = [len({value for _, value in row.values()}) == 1 for row in rows]
    start = next((place for place, odd in enumerate(told) if odd is not None), None)
    if start is None or start < AGREED or not all(agreed[:start]):
        return None
    rest = told[start:]
    nodes = {odd.node if odd is not None else None for odd in rest}
    return rest[0] if len(nodes) == 1 else None


def _apart(row: Mapping[str, tuple[LineRef, str]]) -> Dissent | None:
    """The one rank with a different value than all others."""
    counts = Counter(value for _, value in row.values())
    if len(counts) != 2 or min(counts.values()) != 1:
        return None
    (usual, _), (own, _) = counts.most_common(2)
    node = next(rank for rank, (_, value) in row.items() if value == own)
    return Dissent(node, own, usual, row[node][0])


def values_of(line: str) -> list[str]:
    """The first numbers and hexadecimal values of a line in order, without times, addresses and process ids."""
    return _VALUE.findall(STAMPS.sub(" ", line))[:MOST_VALUES]


def _rises(values: Sequence[str]) -> bool:
    numbers = [float(value) for value in values if value.isdigit()]
    return len(numbers) == len(values) and all(a < b for a, b in pairwise(numbers))


def _number(rank: str) -> int:
    return int(rank.rpartition(" ")[2])
