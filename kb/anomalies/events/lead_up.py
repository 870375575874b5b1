"""Finds what the rank at fault printed before the line that stands out: that line's own component, its words, and its values.

A check that fails at last has often been told before, in a line below the level of an error. It is told with the failure if no other
rank prints it, and no good run, and either both share words that are rare in the run, or such lines are rare on the other ranks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from kb.anomalies.core.dissent import values_of
from kb.anomalies.core.run import RANK, LineRef
from kb.anomalies.core.severity_words import is_body, skeleton
from kb.anomalies.events.ranking import TOLD, RankedEvent
from kb.anomalies.nodes.peers import OddNode
from kb.anomalies.runs.baseline_diff import NEW

MOST_EARLIER = 2  # lines that lead up to another
FEWEST_LETTERS = 4  # of a word that two lines share
RARE = 3  # events of a run in which a rare word is
STRAY = 0.25  # such lines of another rank from which on one may be there by chance
SHORTEST = 3  # characters of a value that two lines share
SURE = 0.5  # score of a line whose lead-up is looked for
_COMPONENT = re.compile(r"[A-Za-z][\w./-]{2,60}: ")  # what names itself at the start of its lines


def with_lead_up(told: Sequence[RankedEvent], weighed: Sequence[RankedEvent], ranks: int) -> list[RankedEvent]:
    """The events that are told with those that lead up to the likeliest one. `ranks`: how many are compared."""
    if not told or len(told[0].nodes) != 1 or told[0].consequence:
        return list(told)
    found = _of_component(told, weighed) + _of_words(told, weighed, ranks) + _of_values(told, weighed)
    known = {item.event.id for item in told}
    earlier = list({item.event.id: item for item in found if item.event.id not in known}.values())
    return [*told, *(replace(item, score=TOLD) for item in earlier[:MOST_EARLIER])]


def _of_component(told: Sequence[RankedEvent], weighed: Sequence[RankedEvent]) -> list[RankedEvent]:
    """What the component of the likeliest event printed before it, if it is heard on that one node only, and in no good run."""
    component = _COMPONENT.match(told[0].event.text)
    lines = [item for item in weighed if component is not None and item.event.text.startswith(component[0])]
    alone = all(item.nodes == told[0].nodes and item.fresh >= NEW and not item.event.elsewhere for item in lines)
    return [item for item in lines if item.spot.order < told[0].spot.order] if alone else []


def before_odd(odd: Sequence[OddNode], weighed: Sequence[RankedEvent], ranks: int) -> list[RankedEvent]:
    """The last new line that an odd rank alone printed before what is odd about it, where such lines are rare on the other ranks."""
    found = []
    for item in odd[:1]:
        here, elsewhere = _own_lines(item.node, weighed)
        earlier = [own for own in here if item.spot is not None and _is_before(own.spot, item.spot)]
        if item.node.startswith(RANK) and elsewhere <= STRAY * (ranks - 1) and len(here) <= MOST_EARLIER:
            found += sorted(earlier, key=lambda own: own.spot.order)[-1:]
    return [replace(own, score=TOLD) for own in found]


def _of_words(told: Sequence[RankedEvent], weighed: Sequence[RankedEvent], ranks: int) -> list[RankedEvent]:
    """New lines of that rank alone before it, the latest first."""
    first = told[0]
    (node,) = first.nodes
    if first.score < SURE or not node.startswith(RANK):
        return []
    own, elsewhere = _own_lines(node, [item for item in weighed if item.event.id != first.event.id])
    here = [item for item in own if _is_before(item.spot, first.spot)]
    stray = elsewhere > STRAY * (ranks - 1) or len(here) > MOST_EARLIER
    often = Counter(word for item in weighed for word in _words(item))
    shared = [item for item in here if not stray or any(often[word] <= RARE for word in _words(item) & _words(first))]
    return sorted(shared, key=lambda item: item.spot.order, reverse=True)


def _own_lines(node: str, weighed: Sequence[RankedEvent]) -> tuple[list[RankedEvent], int]:
    """The new events that a unit alone printed, and how many such events other units have."""
    own = [item for item in weighed if _is_own(item)]
    here = [item for item in own if item.event.nodes.keys() == {node}]
    return here, len(own) - len(here)


def _of_values(told: Sequence[RankedEvent], weighed: Sequence[RankedEvent]) -> list[RankedEvent]:
    """Lines that other ranks print, too, but with other values than the one that the likeliest event quotes."""
    first = told[0]
    (node,) = first.nodes
    quoted = _values(first.spot)
    if not first.raised or not node.startswith(RANK) or not quoted:
        return []
    found = []
    for item in weighed:
        seen = item.event.nodes.get(node)
        if seen is None or len(item.event.nodes) < 3 or item.consequence or item.raised or is_body(item.event.text):
            continue
        mine = [s for s in seen.spots if _values(s) & quoted and _is_before(s, first.spot)]
        if not mine:
            continue
        others = {v for other, its in item.event.nodes.items() if other != node for s in its.spots for v in _values(s)}
        spots = [s for s in mine if _values(s) & quoted - others]
        if spots:
            found.append(replace(item, spot=spots[0], nodes=first.nodes))
    return found


def _is_own(item: RankedEvent) -> bool:
    """Whether one unit alone printed an event, no good run did, and it reports nothing that followed."""
    alone = len(item.event.nodes) == 1 and not item.event.elsewhere and item.fresh >= NEW
    return alone and not (item.consequence or item.raised or item.launched or is_body(item.event.text))


def _is_before(spot: LineRef, other: LineRef) -> bool:
    if spot.source == other.source:
        return spot.offset < other.offset
    return spot.time is None or other.time is None or spot.time <= other.time


def _words(item: RankedEvent) -> frozenset[str]:
    return frozenset(word for word in skeleton(item.event.text) if len(word) >= FEWEST_LETTERS)


def _values(spot: LineRef) -> frozenset[str]:
    """The values of a line that are long enough not to agree by chance."""
    return frozenset(value for value in values_of(spot.text) if len(value) >= SHORTEST)
