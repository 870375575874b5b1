"""Compares nodes with their peers: which ones log differently from others of their role.

There are three methods, each of which names the events that make a node odd: an isolation forest over counts of events (as in L4), a
test of each event by itself (it works for two nodes, and for several that are odd alike), and the numbers in lines that all print. A
node without a log, or whose log ends long before the others', is odd without any of them.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from kb.anomalies.core.clock_skew import corrected
from kb.anomalies.core.numbers import numbers_in
from kb.anomalies.core.run import JOB, RANK, LineRef, RunEvent, RunProfile
from kb.anomalies.core.severity_words import is_body, is_consequence
from kb.anomalies.nodes.isolation_forest import isolate

MOST_COLUMNS = 400
MOST_NODES = 512  # of which a forest is grown
EARLY = 60.0  # seconds before the others, at least; less in a run whose step lines come fast
EARLY_STEPS = 5  # pauses between step lines, at least
USUAL = 0.7  # share of the speakers that print an event from which on it is usual
FEWEST_SHARING = 3  # suspects that share a part of the topology
UNLIKELY = 0.01
LACKS = "it printed common lines less often than its peers"
FAR = 6.0  # spreads from the usual value
FEWEST_LINES = 2  # since a time, for their numbers to be compared


@dataclass(frozen=True, slots=True)
class OddNode:
    """A node that stands out: how much, 0 to 1, why, and the events responsible."""

    node: str
    score: float
    why: str
    events: tuple[str, ...] = ()
    spot: LineRef | None = None  # of a speaker that fell silent, its last line
    begun: float | None = None  # when its number began to move, as far as the lines that are kept show it
    place: int | None = None  # which of the numbers of `spot` moved


def silent(run: RunProfile) -> tuple[OddNode, ...]:
    """Nodes of the job that left no log, while others did; of a job that is heard by rank, ranks, as nothing is known of its nodes."""
    heard = run.heard
    mute = [node for node in run.nodes if node not in heard]
    if run.ranks:
        several = sum(node.startswith(RANK) for node in run.nodes)
        first = f"{RANK}0" if f"{RANK}{several}" in heard else ""  # they are counted from one
        mute = [node for node in mute if node.startswith(RANK) and node != first]
    if len(mute) > len(heard):
        return ()
    return tuple(OddNode(node, 0.8 if run.beats else 1.0, "it left no log") for node in sorted(mute))


def _ends(run: RunProfile, off: Mapping[str, float]) -> Mapping[str, float]:
    """When each node's log ends."""
    ends: dict[str, float] = {}
    for voice in run.voices:
        when = corrected(voice.last, off) if voice.last else None
        if when is not None and voice.node != JOB:
            ends[voice.node] = max(when, ends.get(voice.node, when))
    return ends


def usual_end(run: RunProfile, off: Mapping[str, float]) -> float | None:
    """When the logs of most nodes end."""
    ends = dict(_ends(run, off))
    for event in run.events.values():
        for node, seen in event.nodes.items():
            when = corrected(seen.spots[-1], off) if node in ends and seen.spots else None
            if when is not None:
                ends[node] = max(when, ends[node])
    return median(ends.values()) if ends else None


def ended_early(run: RunProfile, off: Mapping[str, float], interval: float) -> tuple[OddNode, ...]:
    """Nodes, of at least three, whose log ends long before the others' do."""
    kinds = run.kinds
    logs = {unit for unit, kind in kinds.items() if kind == "log"}
    ends = {node: end for node, end in _ends(run, off).items() if len(logs) == len(kinds) or node not in logs}
    if len(ends) < 3:
        return ()
    usual = median(ends.values())
    spread = median([abs(value - usual) for value in ends.values()])
    room = max(min(EARLY, max(2.0, EARLY_STEPS * interval)), 3 * interval, 6 * spread)
    early = [(node, usual - end) for node, end in ends.items() if usual - end > room]
    if len(early) * 3 > len(ends):
        return ()
    return tuple(OddNode(node, 0.6, f"its log ends {gap:.0f} s before the others") for node, gap in sorted(early))


def lacking(run: RunProfile) -> tuple[OddNode, ...]:
    """Nodes with a speaker that printed an event less often than nearly all others of its kind, which print it equally often."""
    kinds = Counter(item.kind for item in run.voices)
    if not kinds:
        return ()
    found: dict[tuple[str, tuple[str, int | None]], tuple[float, list[str]]] = {}
    for event in sorted(run.events.values(), key=lambda item: item.id):
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
        OddNode(
            who[0],
            min(0.7, score * (1 + 0.5 * min(4, len(events) - 1))),
            LACKS,
            tuple(events[:5]),
            _last_line(run, *who),
        )
        for who, (score, events) in found.items()
    ]
    return tuple(
        sorted(odd, key=lambda odd_node: (-odd_node.score, odd_node.node, odd_node.spot.offset if odd_node.spot else 0))
    )


def _last_line(run: RunProfile, node: str, voice: tuple[str, int | None]) -> LineRef | None:
    """The last line kept of a speaker."""
    source, rank = voice
    spots = [
        spot
        for event in run.events.values()
        if (seen := event.nodes.get(node))
        for spot in seen.spots
        if spot.source == source and spot.rank == rank and not is_consequence(spot.text) and not is_body(spot.text)
    ]
    return max(spots, key=lambda item: item.offset, default=None)


def isolated(run: RunProfile, weight: Mapping[str, float]) -> tuple[OddNode, ...]:
    """The isolation forest over the nodes' counts of the given events; `weight` by event says how much a count matters."""
    nodes = sorted(run.heard - {JOB})[:MOST_NODES]
    columns = sorted((value for value in weight if value in run.events), key=lambda value: (-weight[value], value))[
        :MOST_COLUMNS
    ]
    if len(nodes) < 3 or not columns:
        return ()
    rows = [[float(seen.count) if (seen := run.events[c].nodes.get(n)) else 0.0 for c in columns] for n in nodes]
    told = isolate(rows)
    return tuple(
        sorted(
            (
                OddNode(node, score, "its event counts differ from its peers", tuple(columns[c] for c in best[:5]))
                for node, score, best in zip(nodes, told.scores, told.columns, strict=True)
            ),
            key=lambda odd_node: (-odd_node.score, odd_node.node),
        )
    )


def off_values(run: RunProfile, since: float | None, off: Mapping[str, float]) -> tuple[OddNode, ...]:
    """Nodes whose numbers, in lines that most nodes print, have been far from all others' since a time, more than before it."""
    best: dict[str, tuple[float, str, str]] = {}
    nodes = run.heard - {JOB}
    for event in run.events.values():
        if len(event.nodes) < max(3, USUAL * len(nodes)) or is_consequence(event.text) or is_body(event.text):
            continue
        for node, worth, told in _unlike(event, since, off):
            if worth > best.get(node, (0.0, "", ""))[0]:
                best[node] = (worth, told, event.id)
    return tuple(
        sorted(
            (OddNode(node, worth, told, (event,)) for node, (worth, told, event) in best.items()),
            key=lambda odd_node: (-odd_node.score, odd_node.node),
        )
    )


_Columns = dict[int, dict[str, float]]  # by place in the line: by node its usual number there


def _unlike(event: RunEvent, since: float | None, off: Mapping[str, float]) -> list[tuple[str, float, str]]:
    """Nodes with a number that differs from the others': how much, and in words."""
    then, now = _numbers(event, since, off)
    found = []
    for place, values in now.items():
        if len(values) < 3:
            continue
        usual = median(values.values())
        room = FAR * (median([abs(v - usual) for v in values.values()]) * 1.4826 + 0.05 * abs(usual) + 1e-9)
        far = [node for node, value in values.items() if abs(value - usual) > room]
        before = then.get(place, {})
        was = median(before.values()) if len(before) >= 3 else 0.0
        for node in far:
            doublings = _doublings(values[node], usual)
            if was and node in before:
                doublings -= _doublings(before[node], was)  # it was so before
            if doublings > 0.25:
                worth = min(1.0, doublings / 3) / len(far)
                found.append((node, worth, f"{values[node]:g} where the others have {usual:g}"))
    return found


def _numbers(event: RunEvent, since: float | None, off: Mapping[str, float]) -> tuple[_Columns, _Columns]:
    """The usual numbers of each node's lines before a time, and since."""
    then: _Columns = defaultdict(dict)
    now: _Columns = defaultdict(dict)
    for node, seen in event.nodes.items():
        early: list[list[float]] = []
        late: list[list[float]] = []
        for spot in seen.spots:
            time = corrected(spot, off)
            lines = late if since is None or time is None or time >= since else early
            lines.append(numbers_in(spot.text))
        if since is not None and len(late) < FEWEST_LINES:
            late = []
        for columns, lines in ((then, early), (now, late)):
            for place in range(min(min(map(len, lines), default=0), 12)):
                columns[place][node] = median(line[place] for line in lines)
    return then, now


def comparable_units(run: RunProfile) -> set[str]:
    """Return the nodes, and the ranks and logs whose node is unknown, that can differ from each other.

    A single node that some lines name is left out: those ranks and logs are probably on it, too. So is a log that belongs
    to no rank or node, such as a launcher's, beside those of ranks or nodes: it is not one of them.
    """
    kinds = run.kinds
    units = set(kinds)
    machines = {unit for unit in units if kinds[unit] == "node"}
    if len(machines) == 1:
        units -= machines
    peers = {unit for unit in units if kinds[unit] != "log"}
    return peers if len(peers) >= 2 else units


def _doublings(value: float, usual: float) -> float:
    """How many times a number is double, or half, another."""
    return abs(math.log2((abs(value) + 1e-9) / (abs(usual) + 1e-9))) if usual else 0.0


@dataclass(frozen=True, slots=True)
class SharedPlace:
    """A part of the topology ("leaf l3") that most suspects share: how many of all suspects, and how many of the job's nodes are on it.

    `chance`: how likely as many would be on it if they were drawn at random.
    """

    place: str
    suspects: int
    of: int
    members: int
    nodes: int
    chance: float

    @property
    def why(self) -> str:
        """Describe the evidence against the suspect."""
        return (
            f"{self.suspects} of the {self.of} suspicious nodes share it, out of {self.members} of the job's {self.nodes} nodes"
            f" (by chance: {self.chance:.1g}); the fault is probably in what they share rather than in each node"
        )


def shared_places(suspects: Sequence[str], topology: Mapping[str, Mapping[str, str]]) -> tuple[SharedPlace, ...]:
    """Parts of the topology that several suspects share and others do not, beyond chance: the fault is there. The least likely first.

    The chance is the upper tail of the hypergeometric distribution, times the number of parts tested.
    """
    wanted = set(suspects) & set(topology)
    if len(wanted) < FEWEST_SHARING:
        return ()
    members: dict[tuple[str, str], set[str]] = defaultdict(set)
    for node, places in topology.items():
        for kind, name in places.items():
            members[kind, name].add(node)
    found = {}
    for (kind, name), inside in sorted(members.items()):
        both = inside & wanted
        if len(both) < FEWEST_SHARING or len(both) * 4 < len(wanted) * 3 or len(inside) == len(topology):
            continue
        chance = min(1.0, _tail(len(both), len(wanted), len(inside), len(topology)) * len(members))
        if chance <= UNLIKELY and frozenset(inside) not in found:
            found[frozenset(inside)] = SharedPlace(
                f"{kind} {name}", len(both), len(wanted), len(inside), len(topology), chance
            )
    return tuple(sorted(found.values(), key=lambda pair: (pair.chance, pair.members, pair.place)))


def _tail(hits: int, drawn: int, marked: int, total: int) -> float:
    """The probability that at least so many of the drawn are marked."""
    ways = sum(math.comb(marked, k) * math.comb(total - marked, drawn - k) for k in range(hits, min(drawn, marked) + 1))
    return ways / math.comb(total, drawn)
