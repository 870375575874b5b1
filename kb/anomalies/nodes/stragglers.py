"""Finds the rank that the others wait for: it prints each step's line later than all of them.

Compared are lines that nearly all ranks print once per step with its number, and a time of their own: at each number, how much later a
rank prints it than the others do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from statistics import median

from kb.anomalies.core.clock_skew import corrected
from kb.anomalies.core.numbers import numbers_in
from kb.anomalies.core.run import LineRef, RunEvent, RunProfile
from kb.anomalies.core.severity_words import is_body, is_consequence
from kb.anomalies.nodes.peers import OddNode

FEWEST_RANKS = 3
FEWEST_NUMBERS = 3  # at which ranks are compared
USUAL = 0.7  # share of the ranks that print the line
LATE = 0.3  # seconds, at least
APART = 3.0  # times as late as the next one

_Times = Mapping[float, Mapping[str, float]]  # by number, by rank


def straggling(run: RunProfile, off: Mapping[str, float], since: float | None) -> tuple[OddNode, ...]:
    """The rank that is steadily late since a time, if it is a single one."""
    ranks = run.ranks
    best: OddNode | None = None
    for event in sorted(run.events.values(), key=lambda item: item.id):
        many = len(event.nodes.keys() & ranks) >= max(FEWEST_RANKS, USUAL * len(ranks))
        if many and not is_body(event.text) and not is_consequence(event.text):
            odd = _latest(event, ranks, off, since)
            if odd and (best is None or odd.score > best.score):
                best = odd
    return (best,) if best else ()


def _latest(event: RunEvent, ranks: frozenset[str], off: Mapping[str, float], since: float | None) -> OddNode | None:
    """The rank that prints an event later than the others do at nearly all numbers that they have in common."""
    spots = {
        node: [spot for spot in seen.spots if spot.dated and _since(spot, off, since)]
        for node, seen in event.nodes.items()
        if node in ranks
    }
    width = min((len(numbers_in(spot.text)) for several in spots.values() for spot in several), default=0)
    for place in range(min(width, 8)):
        told = _times(spots, place, off)
        late: dict[str, list[float]] = defaultdict(list)
        for times in told.values():
            usual = median(times.values())
            for node, time in times.items():
                late[node].append(time - usual)
        order = sorted(((median(values), node) for node, values in late.items()), reverse=True)
        if len(told) >= FEWEST_NUMBERS and order[0][0] > max(LATE, APART * order[1][0]):
            lag, node = order[0]
            why = f"it prints the line of each step {lag:.1f} s later than the others"
            return OddNode(node, min(1.0, lag), why, (event.id,), spots[node][-1] if spots[node] else None)
    return None


def _since(spot: LineRef, off: Mapping[str, float], since: float | None) -> bool:
    time = corrected(spot, off)
    return time is not None and (since is None or time >= since)


def _times(spots: Mapping[str, list[LineRef]], place: int, off: Mapping[str, float]) -> _Times:
    """When each rank printed each number that nearly all of them printed once."""
    found: dict[float, dict[str, float]] = defaultdict(dict)
    twice: set[float] = set()
    for node, several in spots.items():
        for spot in several:
            number, time = numbers_in(spot.text)[place], corrected(spot, off)
            if node in found[number]:
                twice.add(number)
            if time is not None:
                found[number][node] = time
    least = max(FEWEST_RANKS, USUAL * len(spots))
    return {number: times for number, times in found.items() if number not in twice and len(times) >= least}
