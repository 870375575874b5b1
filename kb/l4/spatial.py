"""Against the peers: which nodes log otherwise than others of their role.

Three looks, each of which names the events that make a node odd: an isolation forest over counts of events (as in L4), a test of each
event by itself (it works for two nodes, and for several that are odd alike), and the numbers in lines that all print. A node
without a log, or whose log ends long before the others', is odd without any.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from kb.l4.clocks import corrected
from kb.l4.forest import isolate
from kb.l4.run import JOB, Event, Run, Spot
from kb.l4.words import is_body, is_consequence

MOST_COLUMNS = 400
MOST_NODES = 512  # of which a forest is grown
EARLY = 60.0  # seconds before the others, at least
USUAL = 0.7  # share of the voices that print an event with which it is a usual one
LACKS = "it printed usual lines less often than its peers"
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\w.]*\d)")


@dataclass(frozen=True, slots=True)
class Odd:
    """A node that stands out: how much, 0 to 1, why, and the events that make it so."""

    node: str
    score: float
    why: str
    events: tuple[str, ...] = ()
    spot: Spot | None = None  # of a voice that fell silent, its last line


def silent(run: Run) -> tuple[Odd, ...]:
    """Nodes of the job that left no log, where others did."""
    heard = run.heard
    mute = [node for node in run.nodes if node not in heard]
    if not heard or len(mute) * 2 >= len(run.nodes):
        return ()
    return tuple(Odd(node, 0.8, "it left no log") for node in sorted(mute))


def ended_early(run: Run, off: Mapping[str, float], interval: float) -> tuple[Odd, ...]:
    """Nodes, of at least three, whose log ends long before the others' do."""
    ends: dict[str, float] = {}
    for voice in run.voices:
        when = corrected(voice.last, off) if voice.last else None
        if when is not None and voice.node != JOB:
            ends[voice.node] = max(when, ends.get(voice.node, when))
    if len(ends) < 3:
        return ()
    usual = median(ends.values())
    spread = median([abs(one - usual) for one in ends.values()])
    room = max(EARLY, 3 * interval, 6 * spread)
    early = [(node, usual - end) for node, end in ends.items() if usual - end > room]
    if len(early) * 3 > len(ends):
        return ()
    return tuple(Odd(node, 0.6, f"its log ends {gap:.0f} s before the others'") for node, gap in sorted(early))


def lacking(run: Run) -> tuple[Odd, ...]:
    """Nodes with a voice that printed an event less often than nearly all others of its kind, which print it equally often."""
    kinds = Counter(one.kind for one in run.voices)
    if not kinds:
        return ()
    found: dict[tuple[str, tuple[str, int | None]], tuple[float, list[str]]] = {}
    for event in sorted(run.events.values(), key=lambda one: one.id):
        counts = {(node, voice): n for node, seen in event.nodes.items() for voice, n in seen.voices.items()}
        if len(counts) < 3:
            continue
        usual, same = Counter(counts.values()).most_common(1)[0]
        fewer = [who for who, n in counts.items() if n < usual]
        if same < USUAL * len(counts) or not fewer or len(fewer) * 6 > len(counts):
            continue
        for who in fewer:
            score, events = found.setdefault(who, (0.0, []))
            found[who] = (max(score, 0.35 / len(fewer)), [*events, event.id])
    odd = [
        Odd(
            who[0],
            min(0.7, score * (1 + 0.5 * min(4, len(events) - 1))),
            LACKS,
            tuple(events[:5]),
            _last_line(run, *who),
        )
        for who, (score, events) in found.items()
    ]
    return tuple(sorted(odd, key=lambda one: (-one.score, one.node, one.spot.offset if one.spot else 0)))


def _last_line(run: Run, node: str, voice: tuple[str, int | None]) -> Spot | None:
    """The last line kept of a voice."""
    source, rank = voice
    spots = [
        spot
        for event in run.events.values()
        if (seen := event.nodes.get(node))
        for spot in seen.spots
        if spot.source == source and spot.rank == rank and not is_consequence(spot.text) and not is_body(spot.text)
    ]
    return max(spots, key=lambda one: one.offset, default=None)


def apart(run: Run, weight: Mapping[str, float]) -> tuple[Odd, ...]:
    """The isolation forest over the nodes' counts of the given events; `weight` by event says which count."""
    nodes = sorted(run.heard - {JOB})[:MOST_NODES]
    columns = sorted((one for one in weight if one in run.events), key=lambda one: (-weight[one], one))[:MOST_COLUMNS]
    if len(nodes) < 3 or not columns:
        return ()
    rows = [[float(seen.count) if (seen := run.events[c].nodes.get(n)) else 0.0 for c in columns] for n in nodes]
    told = isolate(rows)
    return tuple(
        sorted(
            (
                Odd(node, score, "its counts of events are unlike its peers'", tuple(columns[c] for c in best[:5]))
                for node, score, best in zip(nodes, told.scores, told.columns, strict=True)
            ),
            key=lambda one: (-one.score, one.node),
        )
    )


def off_values(run: Run, since: float | None, off: Mapping[str, float]) -> tuple[Odd, ...]:
    """Nodes whose numbers, in lines that most nodes print, are far from all others' since a time."""
    best: dict[str, tuple[float, str, str]] = {}
    nodes = run.heard - {JOB}
    for event in run.events.values():
        if len(event.nodes) < max(2, USUAL * len(nodes)):
            continue
        for node, ratio, told in _unlike(event, since, off):
            if ratio > best.get(node, (0.0, "", ""))[0]:
                best[node] = (ratio, told, event.id)
    return tuple(
        sorted(
            (Odd(node, min(0.9, 0.3 + ratio / 20), told, (event,)) for node, (ratio, told, event) in best.items()),
            key=lambda one: (-one.score, one.node),
        )
    )


def _unlike(event: Event, since: float | None, off: Mapping[str, float]) -> list[tuple[str, float, str]]:
    columns: dict[int, dict[str, float]] = defaultdict(dict)
    for node, seen in event.nodes.items():
        lines = [one.text for one in seen.spots if since is None or (t := corrected(one, off)) is None or t >= since]
        numbers = [[float(x) for x in _NUMBER.findall(line)] for line in lines]
        width = min((len(one) for one in numbers), default=0)
        for i in range(min(width, 12)):
            columns[i][node] = median(one[i] for one in numbers)
    found = []
    for values in columns.values():
        if len(values) < 3:
            continue
        usual = median(values.values())
        spread = median([abs(v - usual) for v in values.values()]) * 1.4826
        for node, value in values.items():
            room = spread + 0.1 * abs(usual) + 1e-9
            far = (value - usual) / room
            if value > 1.5 * usual > 0 and far > 8:
                found.append((node, far, f"{value:g} where others have {usual:g}"))
    return found


def groups(suspects: Sequence[str], topology: Mapping[str, Mapping[str, str]]) -> tuple[str, ...]:
    """Parts of the topology ("leaf l3") that most of several suspects share and that other nodes do not: there lies the fault."""
    if len(suspects) < 3:
        return ()
    found = []
    wanted = set(suspects)
    members: dict[tuple[str, str], set[str]] = defaultdict(set)
    for node, places in topology.items():
        for kind, name in places.items():
            members[kind, name].add(node)
    for (kind, name), inside in sorted(members.items()):
        both = inside & wanted
        if (
            len(both) >= 3
            and len(both) * 8 >= len(wanted) * 7
            and len(both) * 2 > len(inside)
            and inside != set(topology)
        ):
            found.append(f"{kind} {name}")
    return tuple(found)
