"""Finds what is missing on only one node or rank: its log ends early, its error is missing, or a line stops coming.

Its last line represents what is missing, because nothing follows it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import inf
from statistics import median

from kb.anomalies.core.clock_skew import corrected
from kb.anomalies.core.run import JOB, RANK, LineRef, NodeEvent, RunEvent, RunProfile
from kb.anomalies.core.severity_words import by_signal, is_body, is_consequence, is_raised, is_stopped
from kb.anomalies.nodes.odd_stacks import odd_stack
from kb.anomalies.nodes.peers import OddNode, ended_early

MOST_STILL = 2
FEWEST_PEERS = 3
FEWEST_IN_TURN = 4
NEARLY_ALL = 0.75  # of the peers cry, or go on
USUAL = 0.7  # share of the peers that print a regular line
AGAIN = 3  # lines of each of the others that one rank lacks
REGULAR = 4  # lines of an event on a node from which on it is regular
STEADY = 3.0  # times the usual pause, the longest of a steady line
MISSED = 4.0  # of its usual pauses without the line
MISSED_STEADY = 3.0  # likewise, where it comes at regular times on all
SHORTEST = 2.0  # seconds


def absences(run: RunProfile, off: Mapping[str, float], interval: float, at: float | None) -> tuple[OddNode, ...]:
    """Nodes with something missing, each with its last line, the surest first. `at`: when the run turned; `interval`: seconds per step line."""
    found: dict[str, OddNode] = {}
    cry = _without_cry(run, off, at)
    for odd in (
        *ended_early(run, off, interval),
        *cry,
        *_never_there(run, off),
        *stopped_lines(run, off, interval, at),
        *(() if cry else (*_one_less(run, off), *_in_turn(run, off))),
    ):
        found.setdefault(odd.node, odd)
    last = last_lines(run)
    told = [odd if odd.spot else replace(odd, spot=last.get(odd.node)) for odd in found.values()]
    return tuple([odd for odd in told if odd.spot][:MOST_STILL])


def last_lines(run: RunProfile) -> Mapping[str, LineRef]:
    """The last line of each node: of the job's logs only, and no frame of a traceback."""
    found: dict[str, LineRef] = {}
    for voice in run.voices:
        spot = voice.last
        if spot is None or voice.kind != "job" or voice.node == JOB:
            continue
        known = found.get(voice.node)
        if known is None or (spot.time or 0.0, spot.source, spot.offset) > (
            known.time or 0.0,
            known.source,
            known.offset,
        ):
            found[voice.node] = spot
    return found


def _units(run: RunProfile) -> frozenset[str]:
    """The nodes that can be compared: those that are alike."""
    kinds = {unit: kind for unit, kind in run.kinds.items() if unit in run.heard}
    ranked = [kind for kind in kinds.values() if kind != "log"]
    return frozenset(unit for unit, kind in kinds.items() if kind != "log" or not ranked)


def _without_cry(run: RunProfile, off: Mapping[str, float], at: float | None) -> list[OddNode]:
    """The one node that reports nothing at the end, or only once it is told to stop, where nearly all others report an exception or a lost peer."""
    units = _units(run)
    if len(units) < FEWEST_PEERS:
        return []
    ended, usual = _told_to_stop(run), _last_usual(run)
    crying = {
        node
        for event in run.events.values()
        if is_raised(event.text) or is_consequence(event.text)
        for node, seen in event.nodes.items()
        if any(_cries(spot, ended, off, at) and spot.offset > usual.get((node, spot.source), -1) for spot in seen.spots)
    }
    mute = sorted(units - crying)
    elsewhere = odd_stack(run, off, at)
    if len(mute) > 1 and elsewhere is not None and elsewhere.node in ended:
        mute = [elsewhere.node]  # the others were stopped while they waited, like those that cry
    elif len(units & crying) < NEARLY_ALL * len(units):
        return []
    if len(mute) != 1:
        return []
    stop = ended.get(mute[0])
    spot = _last_before(run, mute[0], stop) if stop else None
    return [OddNode(mute[0], 0.6, "all others report an error or a lost peer, and this one does not", (), spot)]


def _last_usual(run: RunProfile) -> Mapping[tuple[str, str], int]:
    """By node and source the offset of the last line that most nodes print again and again: a cry before it was survived."""
    units = len(_units(run))
    found: dict[tuple[str, str], int] = {}
    for event in run.events.values():
        usual = len(event.nodes) * 2 > units and event.count > 2 * len(event.nodes)
        if usual and not is_raised(event.text) and not is_consequence(event.text) and not is_body(event.text):
            for node, seen in event.nodes.items():
                for spot in seen.spots:
                    found[node, spot.source] = max(spot.offset, found.get((node, spot.source), -1))
    return found


def _cries(spot: LineRef, ended: Mapping[str, LineRef], off: Mapping[str, float], at: float | None) -> bool:
    """Whether a line is a report of its speaker's own at the end."""
    stop = ended.get(spot.node)
    if stop is not None and stop.source == spot.source and stop.offset <= spot.offset:
        return False
    time = corrected(spot, off)
    return at is None or time is None or time >= at - SHORTEST


def _told_to_stop(run: RunProfile) -> Mapping[str, LineRef]:
    """By rank the first line in which it says that it was told to stop."""
    found: dict[str, LineRef] = {}
    for event in run.events.values():
        for node, seen in event.nodes.items():
            for spot in seen.spots:
                own = spot.rank is not None and is_stopped(spot.text)
                if own and (node not in found or spot.offset < found[node].offset):
                    found[node] = spot
    return found


def _last_before(run: RunProfile, node: str, stop: LineRef) -> LineRef | None:
    """The last line of a rank that is kept from before it was told to stop."""
    spots = [
        spot
        for event in run.events.values()
        if node in event.nodes and not is_body(event.text)
        for spot in event.nodes[node].spots
        if spot.source == stop.source and spot.offset < stop.offset
    ]
    return max(spots, key=lambda spot: spot.offset, default=None)


def stopped_lines(run: RunProfile, off: Mapping[str, float], interval: float, at: float | None) -> list[OddNode]:
    """Nodes that no longer print a regular line, while nearly all others that print it continue."""
    units = _units(run)
    found: dict[str, tuple[int, OddNode]] = {}
    for event in sorted(run.events.values(), key=lambda item: item.id):
        regular = {node: seen for node, seen in event.nodes.items() if node in units and seen.count >= REGULAR}
        fewest = max(FEWEST_PEERS, USUAL * len(units))
        if len(regular) < fewest or is_body(event.text) or is_consequence(event.text):
            continue
        ends = {node: end for node, seen in regular.items() if (end := _end(seen, off)) is not None}
        if len(ends) < NEARLY_ALL * len(regular):
            continue
        usual = median(end for end, _ in ends.values())
        pause = max(SHORTEST, 2 * interval, MISSED * median(_pause(seen, off) for seen in regular.values()))
        if at is not None and usual < at - pause:
            continue  # it ended everywhere before the turn, as lines of a start do
        always = all(_is_steady(seen, off) for seen in regular.values())
        left_out = any(seen.count > len(seen.spots) for seen in regular.values())
        missed = MISSED_STEADY if always else MISSED
        longest = inf
        if always and left_out:  # lines that were not kept would seem to be a silence
            longest = median(_pause(seen, off) for seen in regular.values())
        late = {node: max(SHORTEST, 2 * interval, missed * _pause(seen, off)) for node, seen in regular.items()}
        before = [item for item in ends.items() if usual - item[1][0] > late[item[0]]]
        times = _times(event, off) if before else []
        early = [
            (node, spot, usual - end)
            for node, (end, spot) in before
            if usual - end - min(longest, _silence(times, end, usual)) > late[node]
        ]
        steady = sum(_is_steady(seen, off) for seen in regular.values()) * 2 >= len(regular)
        if len(early) == 1 and len(early) * 4 <= len(ends) and steady:
            node, spot, gap = early[0]
            if node not in found or found[node][0] < event.count:
                why = f"{_others(len(ends) - 1)} print this for {gap:.0f} s longer"
                found[node] = (event.count, OddNode(node, 0.5, why, (event.id,), spot))
    return [odd for _, odd in found.values()]


def _never_there(run: RunProfile, off: Mapping[str, float]) -> list[OddNode]:
    """The one rank that never printed what all others print again and again, and that printed nothing else since they began to."""
    units, last = run.ranks, last_lines(run)
    for event in sorted(run.events.values(), key=lambda item: item.id):
        here = event.nodes.keys() & units
        if len(units) <= FEWEST_PEERS or len(here) != len(units) - 1 or is_body(event.text) or is_raised(event.text):
            continue
        (node,) = units - here
        if min(event.nodes[unit].count for unit in here) < AGAIN or node not in last:
            continue
        ended = corrected(last[node], off)
        again = [corrected(event.nodes[unit].spots[1], off) for unit in here if len(event.nodes[unit].spots) > 1]
        known = [time for time in again if time is not None]
        if ended is not None and known and ended <= min(known):
            why = f"{_others(len(here))} print this again and again, and it printed nothing since"
            return [OddNode(node, 0.6, why, (event.id,))]
    return []


def _times(event: RunEvent, off: Mapping[str, float]) -> list[float]:
    """When any node printed an event, in order."""
    spots = (spot for seen in event.nodes.values() for spot in seen.spots)
    return sorted(time for spot in spots if (time := corrected(spot, off)) is not None)


def _silence(times: Sequence[float], since: float, until: float) -> float:
    """The longest time between, in which no node printed the event: then none could be missed."""
    within = times[bisect_left(times, since) : bisect_right(times, until)]
    return max((after - before for before, after in pairwise(within)), default=0.0)


def _one_less(run: RunProfile, off: Mapping[str, float]) -> list[OddNode]:
    """The one rank that did not print a regular line once more, where all others printed it equally often and nobody reports an error.

    So it is when all wait for one: each came as far as the others, and the one did not come to the next line.
    """
    units = run.ranks
    usual, last = _last_usual(run), last_lines(run)
    behind: dict[str, tuple[int, str]] = {}
    for event in sorted(run.events.values(), key=lambda item: item.id):
        cries = is_raised(event.text) or is_consequence(event.text) or _of_signal(event)
        if cries and any(
            spot.offset > usual.get((node, spot.source), -1)
            for node, seen in event.nodes.items()
            for spot in seen.spots
        ):
            return []
        counts = {node: seen.count for node, seen in event.nodes.items() if node in units}
        if cries or len(units) <= FEWEST_PEERS or len(counts) < len(units):
            continue
        most = max(counts.values())
        fewer = [node for node, count in counts.items() if count != most]
        if len(fewer) != 1 or counts[fewer[0]] != most - 1:
            continue
        if most > REGULAR or (most > 1 and _came_after(event, last.get(fewer[0]), off)):
            behind[fewer[0]] = (event.count, event.id)
    if len(behind) != 1:
        return []
    ((node, (_, name)),) = behind.items()
    return [OddNode(node, 0.6, f"the {len(units) - 1} others printed one more regular line", (name,))]


def _of_signal(event: RunEvent) -> bool:
    """Whether a launcher says in it that a signal ended a process: then that one is missed."""
    return any(by_signal(seen.spots[0].text) for seen in event.nodes.values())


def _came_after(event: RunEvent, last: LineRef | None, off: Mapping[str, float]) -> bool:
    """Whether all other nodes printed an event once more after the last line of one, which is none of it.

    Else they may print it in turn.
    """
    if last is None or any(spot.offset == last.offset for spot in event.nodes[last.node].spots):
        return False
    spots = [seen.spots[-1] for node, seen in event.nodes.items() if node != last.node]
    if all(spot.source == last.source for spot in spots):
        return all(spot.offset > last.offset for spot in spots)
    ended, times = corrected(last, off), [corrected(spot, off) for spot in spots]
    return ended is not None and all(time is not None and time > ended for time in times)


def _in_turn(run: RunProfile, off: Mapping[str, float]) -> list[OddNode]:
    """The rank with the turn, where ranks print a line one after the other and those from some rank on did not print it again."""
    units = run.ranks
    order = sorted(units, key=lambda unit: int(unit.removeprefix(RANK)))
    last = last_lines(run)
    for event in sorted(run.events.values(), key=lambda item: item.id):
        if len(units) < FEWEST_IN_TURN or event.nodes.keys() != units:
            continue
        if is_raised(event.text) or is_consequence(event.text) or is_body(event.text):
            continue
        counts = [event.nodes[unit].count for unit in order]
        ahead = counts.count(counts[0])
        if not 1 < ahead < len(order) - 1 or counts != [counts[0]] * ahead + [counts[0] - 1] * (len(order) - ahead):
            continue
        spots = [event.nodes[unit].spots for unit in order]
        final = [corrected(several[-1], off) for several in spots[:ahead]]
        before = [corrected(several[0], off) for several in spots]
        node, spot = order[ahead - 1], spots[ahead - 1][-1]
        if _rises(final) and _rises(before) and last.get(node, spot).offset == spot.offset:
            return [
                OddNode(node, 0.6, f"the {len(order) - ahead} ranks after it wait for their turn", (event.id,), spot)
            ]
    return []


def _rises(times: Sequence[float | None]) -> bool:
    known = [time for time in times if time is not None]
    return len(known) == len(times) and all(before <= after for before, after in pairwise(known))


def _others(count: int) -> str:
    return f"the {count} others"


def _end(seen: NodeEvent, off: Mapping[str, float]) -> tuple[float, LineRef] | None:
    """When the last line of an event came on a node, if it is the node's own."""
    spot = seen.spots[-1]
    time = corrected(spot, off)
    return None if time is None or not spot.dated or len(seen.spots) < 2 else (time, spot)


def _is_steady(seen: NodeEvent, off: Mapping[str, float]) -> bool:
    """Whether an event comes at regular times: chance makes long pauses, too. One pause may be that of lines that were not kept."""
    times = [time for spot in seen.spots if (time := corrected(spot, off)) is not None]
    pauses = sorted(after - before for before, after in pairwise(times))[:-1]
    return not pauses or pauses[-1] <= STEADY * max(1.0, median(pauses))


def _pause(seen: NodeEvent, off: Mapping[str, float]) -> float:
    """The usual seconds between two lines of an event on a node."""
    times = [time for spot in seen.spots if (time := corrected(spot, off)) is not None]
    return (max(times) - min(times)) / max(1, seen.count - 1) if times else 0.0
