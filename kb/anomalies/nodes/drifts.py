"""Finds numbers that change on one rank only, or stay constant there only: a queue that grows, a count that stops.

Compared are lines that nearly all ranks print again and again: each rank's last numbers with its first ones, and with the others' last
ones. Both must differ, because a rank may be different from the start, and a number may change everywhere. A count has stopped if it grows
from line to line on all other ranks. Nodes are not compared: several processes write their lines.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import nlargest
from itertools import pairwise
from operator import itemgetter
from statistics import median

from kb.anomalies.core.numbers import numbers_in
from kb.anomalies.core.run import LineRef, RunEvent, RunProfile
from kb.anomalies.core.severity_words import is_body, is_consequence, skeleton
from kb.anomalies.nodes.peers import OddNode

FEWEST_NODES = 4
FEWEST_LINES = 5  # of a node that are kept
EDGE = 3  # lines at the beginning, and at the end, whose median counts
USUAL = 0.7  # share of the nodes that print the line
DOUBLED = 1.0  # powers of two by which a number must have moved
FAR = 6.0  # spreads of the others' movement
TWICE = 2.0
KEPT = 6  # last lines that follow each other
NOISY = 3.0  # times as much as a number varies from line to line
STANDS = 0.6  # score of a number that stands
MOST = 1
BEHIND = 0.5  # of the score
SMALL = 0.25  # of the usual value of numbers with a fraction
NumberPlace = tuple[tuple[str, ...], int]  # the words of a line, and which of its numbers
_ROW = re.compile(r"\W{0,3}<\*>(?:\W{1,3}<\*>){2,20}\W{0,3}")  # of a table: numbers only
_WAITS = re.compile(r"(?i)(?<![a-z])(?:wait(?:ed|ing|s)?|idle|stalled)(?![a-z])")


def drifting(run: RunProfile, usual: Collection[NumberPlace] = ()) -> tuple[OddNode, ...]:
    """Nodes with a number that changed as on no other node, each with the line from which on it has, the largest change first.

    Who waits longer than before waits for another, whose own number comes first. `usual`: the numbers that move on
    one rank of a good run as well, by the words and the place.
    """
    best: dict[str, OddNode] = {}
    for event in _common(run):
        words = skeleton(event.text)
        for odd in _of_event(event):
            if (words, odd.place) not in usual and (odd.node not in best or _order(odd) < _order(best[odd.node])):
                best[odd.node] = odd
    return tuple(sorted(best.values(), key=_order)[:MOST])


def numbers_moving(run: RunProfile) -> frozenset[NumberPlace]:
    """The numbers that move on one rank of a good run only, as that of a rank with a role of its own."""
    return frozenset(
        (skeleton(event.text), odd.place) for event in _common(run) for odd in _of_event(event) if odd.place is not None
    )


def _common(run: RunProfile) -> Iterator[RunEvent]:
    """Yield the events that nearly all ranks print."""
    nodes = run.ranks
    for event in sorted(run.events.values(), key=lambda item: item.id):
        few = len(event.nodes.keys() & nodes) < max(FEWEST_NODES, USUAL * len(run.peers(event.nodes)))
        body = is_body(event.text) and not _ROW.fullmatch(event.text)
        if not few and not is_consequence(event.text) and not body:
            yield event


def _order(odd: OddNode) -> tuple[bool, float, str]:
    """The key by which odd nodes are sorted, the first to be told first."""
    return odd.spot is not None and _WAITS.search(odd.spot.text) is not None, -odd.score, odd.node


def _of_event(event: RunEvent) -> list[OddNode]:
    rows = {
        node: _numbers(seen.spots) for node, seen in event.nodes.items() if len(_own(seen.spots, node)) >= FEWEST_LINES
    }
    if len(rows) < max(FEWEST_NODES, USUAL * len(event.nodes)):
        return []
    width = min(len(line) for lines in rows.values() for line in lines)
    found = []
    for place in range(width):
        values = {node: [line[place] for line in lines] for node, lines in rows.items()}
        first = {node: median(own[:EDGE]) for node, own in values.items()}
        last = {node: median(own[-EDGE:]) for node, own in values.items()}
        least = _least(values)
        moved = {node: _powers(last[node], first[node], least) for node in rows}
        usual, end = median(moved.values()), median(last.values())
        spread = 1.4826 * median(abs(value - usual) for value in moved.values())
        noise = median(_range(own[-EDGE:], least) for own in values.values())
        leaving = _leaving(values)
        far = [
            node
            for node in rows
            if (
                abs(moved[node] - usual) > max(DOUBLED, FAR * spread, NOISY * noise)
                and abs(_powers(last[node], end, least)) > DOUBLED
            )
            or node in leaving
        ]
        if len(far) == 1:
            node = far[0]
            why = f"{last[node]:g} here, {end:g} on the others; {first[node]:g} at first"
            score = min(1.0, abs(moved[node] - usual) / 4)
            spots = event.nodes[node].spots
            behind = abs(moved[node]) < abs(usual)  # it printed no more of them, while the others went on
            begun = spots[-1] if behind else _begun(values[node], spots, first[node], last[node], least)
            score *= BEHIND if behind else 1.0  # what moves on the rank itself says more
            found.append(OddNode(node, score, why, (event.id,), begun, begun.time, place))
        found += [replace(odd, place=place) for odd in (*_standing(event, values), *_turned(event, values))]
    return found


def _turned(event: RunEvent, rows: Mapping[str, Sequence[float]]) -> Iterator[OddNode]:
    """Yield the only node on which a number of one sign has the other one in its last lines, with the first such line."""
    odd = [node for node, own in rows.items() if len({math.copysign(1.0, value) for value in own[-EDGE:]}) == 1]
    signs = {node: math.copysign(1.0, rows[node][-1]) for node in odd}
    usual = median(signs.values()) if signs else 0.0
    odd = [node for node, sign in signs.items() if sign != usual]
    rest = [value for node, own in rows.items() if node not in odd for value in own]
    if len(odd) != 1 or not usual or any(value * usual <= 0.0 for value in rest) or rows[odd[0]][0] * usual <= 0.0:
        return
    node, own = odd[0], rows[odd[0]]
    since = next(at for at in range(len(own), 0, -1) if own[at - 1] * usual > 0.0)
    if all(value * usual > 0.0 for value in own[:since]):
        why = f"{own[-1]:g} in its last {len(own) - since} such lines; before, and on the others, it has the other sign"
        spot = event.nodes[node].spots[since]
        yield OddNode(node, STANDS, why, (event.id,), spot, spot.time)


def _leaving(rows: Mapping[str, Sequence[float]]) -> frozenset[str]:
    """The ranks on which a number rises from line to line until the end, to twice what any other rank ever prints and it did at first."""
    peaks = {node: max(values) for node, values in rows.items()}
    highest = nlargest(2, peaks.items(), key=itemgetter(1))
    return frozenset(
        node
        for node, own in rows.items()
        if own[-EDGE] > TWICE * max(*own[:EDGE], 1.0, *(peak for other, peak in highest if other != node))
        and _grows(own)
        and all(before <= after for before, after in pairwise(own[-KEPT:]))
    )


def _begun(values: Sequence[float], spots: Sequence[LineRef], first: float, last: float, least: float) -> LineRef:
    """The line from which on a number was nearer to its last value than to its first one."""
    near = [abs(_powers(value, last, least)) < abs(_powers(value, first, least)) for value in values]
    since = next((at for at in range(len(near), 0, -1) if not near[at - 1]), 0)
    return spots[min(since, len(spots) - 1)]


def _standing(event: RunEvent, rows: Mapping[str, Sequence[float]]) -> Iterator[OddNode]:
    """Yield the only node on which a count no longer grows, with the first line that shows it."""
    still = [node for node, values in rows.items() if len({*values[-EDGE:]}) == 1 and values[0] < values[-1]]
    if len(still) == 1 and all(_grows(values) for node, values in rows.items() if node != still[0]):
        node, values = still[0], rows[still[0]]
        since = next(at for at, value in enumerate(values) if value == values[-1])
        why = f"{values[-1]:g} in its last {len(values) - since} such lines; on the others it grows"
        spot = event.nodes[node].spots[since + 1]
        yield OddNode(node, STANDS, why, (event.id,), spot, spot.time)


def _grows(values: Sequence[float]) -> bool:
    return all(before < after for before, after in pairwise(values[-EDGE:]))


def _own(spots: Sequence[LineRef], node: str) -> set[tuple[str, int]]:
    return {(spot.source, spot.offset) for spot in spots if spot.node == node}


def _numbers(spots: Sequence[LineRef]) -> list[list[float]]:
    return [numbers_in(spot.text) for spot in spots]


def _least(rows: Mapping[str, Sequence[float]]) -> float:
    """What differences are seen against: small counts vary by one or two, but times and shares are small by themselves."""
    values = [abs(value) for own in rows.values() for value in own]
    counts = sum(value.is_integer() for value in values) * 2 > len(values)
    return 1.0 if counts else min(1.0, SMALL * median(values)) or 1.0


def _range(values: Iterable[float], least: float) -> float:
    """By how many powers of two numbers differ."""
    several = list(values)
    return _powers(max(several), min(several), least)


def _powers(value: float, other: float, least: float) -> float:
    """By how many powers of two a number exceeds another; numbers below the least do not count as far apart."""
    return math.log2((abs(value) + least) / (abs(other) + least))
