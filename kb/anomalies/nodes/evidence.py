"""Collects the evidence against each node: what it prints, how often, with which numbers, what is missing, and what others report about it.

Each ground is a number from 0 to 1 that any log gives; none knows particular messages. `kb.anomalies.nodes.suspects` weighs them.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kb.anomalies.core.blocks import is_part
from kb.anomalies.core.clock_skew import corrected
from kb.anomalies.core.run import JOB, RANK, LineRef, NodeEvent, RunEvent, RunProfile
from kb.anomalies.core.severity_words import by_signal, harm, is_consequence, is_raised
from kb.anomalies.nodes.absences import absences
from kb.anomalies.nodes.drifts import drifting
from kb.anomalies.nodes.grounds import NodeEvidence
from kb.anomalies.nodes.members import odd_status
from kb.anomalies.nodes.mentions import NodeNames
from kb.anomalies.nodes.odd_stacks import odd_stack
from kb.anomalies.nodes.peers import OddNode, comparable_units, isolated, lacking, off_values, silent
from kb.anomalies.nodes.stragglers import straggling
from kb.anomalies.nodes.turning_point import SOON, TurningPoint
from kb.anomalies.nodes.verdicts import rank_reported

TOGETHER = 30.0  # seconds within which several nodes print something alike
ALONG = 5.0  # seconds after which the first speaker no longer counts as first
MANY = 0.6  # share of the nodes from which on an event belongs to all
NEARLY_ALL = 0.75
TROUBLE = 0.35  # harm from which on an event indicates trouble
MOST_FOREST = 5
REPORTER = 0.3  # how much it counts against a rank to print what stands out, if that is about another
OF_A_REPORT = (
    "says",
    "new",
    "first",
    "forest",
    "early",
    "mute ranks",
    "quiet",
    "status",
)  # how a reporter is unlike others
NAMED_ONCE = "another one mentions it"  # counts, but it may be a launcher's list, or an address: not told
EVERYBODY = 0.25  # how much it counts to be named where most are


def node_evidence(
    run: RunProfile,
    fresh: Mapping[str, float],
    told: Sequence[tuple[str, float]],
    moment: TurningPoint,
    off: Mapping[str, float],
) -> Mapping[str, NodeEvidence]:
    """The evidence against each node.

    `fresh`: by event, 0 to 1, how little the good run has of it; `told`: the events that indicate the failure, with their weight.
    """
    look = _EvidenceCollector(run, fresh, moment, off)
    comparable = comparable_units(run)
    if len(comparable) >= 2:
        look.by_events()
        look.by_names()
        look.by_absence()
        look.by_ranks()
        look.by_told(told)
        look.by_shape()
        look.by_status()
        look.excuse_reporters()
    return {node: found for node, found in look.found.items() if node in comparable}


@dataclass(frozen=True, slots=True)
class _Times:
    """One node's lines of an event: how near to the turn; how many kept lines come since it, soon after it and before it; how many exist."""

    near: float
    since: int
    soon: int
    before: int
    count: int
    first: float | None
    first_since: float | None
    dated: bool  # `first_since` is the line's own time


class _EvidenceCollector:
    """One run, examined under all aspects."""

    def __init__(
        self, run: RunProfile, fresh: Mapping[str, float], moment: TurningPoint, off: Mapping[str, float]
    ) -> None:
        self._run, self._fresh, self._off = run, fresh, off
        self.found = {node: NodeEvidence() for node in sorted({*run.nodes, *run.heard} - {JOB})}
        self._heard = sorted(run.heard - {JOB})
        self._names = NodeNames(run)
        self._reporters: set[str] = set()  # nodes that report on another
        self._events = [event for event in run.events.values() if not is_part(event)]
        self._moment = TurningPoint(moment.at, moment.interval, moment.crashed, self._wave(moment.at))

    def _wave(self, at: float | None) -> float | None:
        """When the first consequence came that the good run has less often."""
        times = (
            time
            for event in self._run.events.values()
            if self._new(event) >= 0.5 and is_consequence(event.text)
            for seen in event.nodes.values()
            for time in self._corrected_times(seen)
            if at is None or time >= at - 1
        )
        return min(times, default=None)

    def _new(self, event: RunEvent) -> float:
        return self._fresh.get(event.id, 0.5)

    def _corrected_times(self, seen: NodeEvent) -> list[float]:
        return [time for spot in seen.spots if (time := corrected(spot, self._off)) is not None]

    def _rare(self, few: int) -> float:
        """0 to 1: how few of the nodes do it; 1 for a single one."""
        nodes = len(self._heard)
        return 0.0 if few >= nodes else math.log(nodes / few) / math.log(nodes)

    def _times(self, seen: NodeEvent) -> _Times:
        moment = self._moment
        times = [corrected(spot, self._off) for spot in seen.spots]
        known = [time for time in times if time is not None]
        since = [time for time in known if time >= moment.since - moment.interval]
        return _Times(
            max((moment.near(time) for time in times), default=0.0),
            len(since),
            sum(moment.near(time) > 0.5 for time in since),
            len(times) - len(since),
            seen.count,
            min(known, default=None),
            min(since, default=None),
            any(
                spot.dated
                for spot, time in zip(seen.spots, times, strict=True)
                if since and time is not None and time == min(since)
            ),
        )

    # What the node prints

    def by_events(self) -> None:
        """Events that few nodes print, or print more often, near the turn or after it."""
        says: dict[str, list[tuple[float, str, int]]] = defaultdict(list)
        first: list[tuple[float, str, str, float, bool]] = []
        for event in self._events:
            signal = by_signal(event.text)
            if is_consequence(event.text) and not signal:
                continue
            told = 1.0 if signal else harm(event.text, event.level)
            seen = {node: self._times(item) for node, item in event.nodes.items() if node in self.found}
            self._alike(event, told, seen)
            self._together(event, told, seen)
            new = self._new(event)
            for node, times in seen.items():
                says[node].append(
                    (told * times.near * (0.25 + 0.75 * new) * self._rare(len(seen)), event.id, len(seen))
                )
                if told >= TROUBLE and times.first_since is not None and len(seen) <= MANY * len(self._heard):
                    first.append((times.first_since, node, event.id, told * (0.3 + 0.7 * new), times.dated))
        for node, several in says.items():
            self._add_rare_lines(node, sorted(several, key=lambda item: (-item[0], item[1])))
        start = min(first, default=(0.0,))[0]
        leaders = {node for time, node, _, _, dated in first if time == start and dated}
        for time, node, name, worth, dated in first:
            why = "it reports trouble" if not dated else "it was among the first to report trouble"
            if time == start and leaders == {node}:
                why = "it reported trouble first"
            odd = OddNode(node, worth, why, (name,))
            self.found[node].take("first", worth * math.exp(-(time - start) / ALONG), odd)

    def _add_rare_lines(self, node: str, several: Sequence[tuple[float, str, int]]) -> None:
        worth, name, few = several[0]
        why = "no other node or rank prints this" if few == 1 else "few others print this"
        self.found[node].take("says", worth, OddNode(node, worth, why, (name,)))
        rest = sum(item[0] / (1 + place) for place, item in enumerate(several[1:5])) / 1.5
        names = tuple(item[1] for item in several[1:4])
        self.found[node].take(
            "says more", rest, OddNode(node, rest, "it prints several lines that few others print", names)
        )

    def _alike(self, event: RunEvent, told: float, seen: Mapping[str, _Times]) -> None:
        """New lines of few nodes, lines more frequent than elsewhere, lines that come since the turn."""
        new = self._new(event)
        counts = sorted(item.count for item in seen.values())
        late = sorted(item.since for item in seen.values())
        for node, item in seen.items():
            found = self.found[node]
            worth = item.near * max(0.0, new - 0.3) / 0.7 * self._rare(len(seen)) * min(1.0, (1 + item.soon) / 3)
            why = "no other node or rank prints this new line" if len(seen) == 1 else "few others print this new line"
            found.take("new", worth * (0.5 if item.before else 1.0), OddNode(node, worth, why, (event.id,)))
            if item.count > 1:
                alike = self._rare(_at_least(counts, item.count / 2))
                worth = alike * min(1.0, item.count / 5) * (0.3 + 0.7 * item.near) * (0.1 + 0.9 * told)
                found.take("often", worth, OddNode(node, worth, "it often prints what others rarely do", (event.id,)))
            if item.since > 1:
                alike = self._rare(_at_least(late, item.since / 2))
                only = max(0.1, 1 - item.before / item.since)
                worth = alike * min(1.0, item.since / 4) * (0.15 + 0.85 * told) * only * (0.4 + 0.6 * item.near)
                found.take(
                    "onset", worth, OddNode(node, worth, "it prints this since the failure, others do not", (event.id,))
                )

    def _together(self, event: RunEvent, told: float, seen: Mapping[str, _Times]) -> None:
        """What several nodes print at one time, and the others do not: they are odd alike."""
        if not 2 <= len(seen) <= len(self._heard) / 3:
            return
        starts = [times.first for times in seen.values() if times.first is not None]
        close = len(starts) == len(seen) and max(starts) - min(starts) <= max(TOGETHER, self._moment.interval)
        for node, item in seen.items():
            worth = item.near * (0.2 + 0.8 * told) * self._new(event) * (1.0 if close else 0.3)
            why = f"{len(seen)} print this together, the others do not"
            self.found[node].take("together", worth, OddNode(node, worth, why, (event.id,)))

    def by_told(self, told: Sequence[tuple[str, float]]) -> None:
        """Events that indicate the failure, if few nodes print them."""
        for name, worth in told:
            event = self._run.events[name]
            nodes = [node for node in event.nodes if node in self.found]
            other = rank_reported(event, self._run.ranks)
            killed = self._killed(event)
            if killed is not None:
                odd = OddNode(killed, worth, "its launcher reports the signal that ended it", (name,))
                self.found[killed].take("reported", worth, odd)
            if other is not None:
                self._reporters |= event.nodes.keys()
                by = "another one reports" if len(nodes) == 1 else f"{len(nodes)} others report"
                self.found[other].take("reported", worth, OddNode(other, worth, f"{by} its number", (name,)))
                worth *= REPORTER  # noqa: PLW2901 - it speaks of another
            why = (
                "no other node or rank prints the line that stands out"
                if len(nodes) == 1
                else "few others print the line that stands out"
            )
            for node in nodes:
                part = worth * self._rare(len(nodes))
                self.found[node].take("told", part, OddNode(node, part, why, (name,)))

    def _killed(self, event: RunEvent) -> str | None:
        """The one rank that a launcher's line on a signal names."""
        spots = [spot for seen in event.nodes.values() for spot in seen.spots if by_signal(spot.text)]
        if not spots or any(node.startswith(RANK) for node in event.nodes):
            return None
        named = frozenset[str]().union(*(self._names.of(spot, ranks=True) for spot in spots)) & self.found.keys()
        return next(iter(named)) if len(named) == 1 else None

    # What others print about the node, and what it does not print

    def by_names(self) -> None:
        """Nodes that others name when they report problems after the turning point."""
        speakers: dict[str, set[str]] = defaultdict(set)
        killed: set[str] = set()  # that a launcher saw end by a signal which is not its own
        first: dict[str, float] = {}
        for spot, speaker, others in self._naming():
            time = corrected(spot, self._off)
            for other in others:
                speakers[other].add(speaker)
                if by_signal(spot.text):
                    killed.add(other)
                if time is not None:
                    first[other] = min(time, first.get(other, time))
        most = max(map(len, speakers.values()), default=0)
        total = sum(map(len, speakers.values()))
        start = min(first.values(), default=0.0)
        ties = sum(len(by) == most for by in speakers.values())  # each waits for its neighbour
        for node, by in speakers.items():
            soon = first.get(node, math.inf) - start <= 2.0
            worth = 0.6 / math.sqrt(ties) * len(by) / most * min(1.0, 0.4 + len(by) / total) + (0.4 if soon else 0.0)
            if killed:
                worth = 1.0 if node in killed else worth / 2
            elif len(speakers) > MANY * len(self._heard):
                worth *= EVERYBODY  # a launcher lists all that it ended
            why = NAMED_ONCE if len(by) == 1 else f"{len(by)} others mention it"
            self.found[node].take("named", worth, OddNode(node, worth, why))

    def _naming(self) -> Iterator[tuple[LineRef, str, frozenset[str]]]:
        """Lines of trouble since the turn that name other nodes: the line, its node, the others."""
        names, at = self._names, self._moment.at
        for event in filter(self._is_trouble, self._events):
            for node, seen in event.nodes.items():
                for spot in seen.spots:
                    time = corrected(spot, self._off)
                    if time is None or at is None or time >= at - SOON:
                        yield spot, node, names.of(spot, ranks=True) & self.found.keys()

    def _is_trouble(self, event: RunEvent) -> bool:
        """Whether an event reports trouble that the good run does not have."""
        trouble = harm(event.text, event.level) >= 0.3 or is_consequence(event.text)
        return trouble and self._new(event) >= 0.3

    def by_absence(self) -> None:
        """What nearly all others print since the turn, and it does not: consequences, and usual lines."""
        count = len(self._heard)
        if count < 3 or self._moment.at is None:
            return
        for ground, consequences in (("quiet", True), ("misses", False)):
            lacks: dict[str, list[tuple[float, str]]] = defaultdict(list)
            common = 0
            for event in self._events:
                if is_consequence(event.text) != consequences:
                    continue
                said = self._since(event)
                if len(said) >= NEARLY_ALL * count:
                    common += 1
                    for node in self._heard:
                        if node not in said:
                            lacks[node].append((1 / (count - len(said)), event.id))
            for node, parts in lacks.items():
                worth = sum(part for part, _ in parts) / math.sqrt(max(2.0, common))
                why = "it lacks what nearly all others print at the end"
                self.found[node].take(ground, worth, OddNode(node, worth, why, tuple(name for _, name in parts[:5])))

    def _since(self, event: RunEvent) -> Collection[str]:
        """The nodes that printed it since the turn."""
        return {
            node
            for node, seen in event.nodes.items()
            if node in self.found and any(time >= self._moment.since for time in self._corrected_times(seen))
        }

    def by_ranks(self) -> None:
        """Nodes with ranks that do not print what the others' ranks report at the end."""
        voices: dict[str, set[tuple[str, int | None]]] = defaultdict(set)
        crying: dict[str, set[tuple[str, int | None]]] = defaultdict(set)
        for event in self._run.events.values():
            late = self._since(event) if is_consequence(event.text) or is_raised(event.text) else ()
            for node, seen in event.nodes.items():
                if node in self.found:
                    ranks = {voice for voice in seen.voices if voice[1] is not None}
                    voices[node] |= ranks
                    if node in late:
                        crying[node] |= ranks
        total = sum(map(len, voices.values()))
        if total < 3 or sum(map(len, crying.values())) * 2 < total:
            return
        kinds = self._run.kinds
        mute = {node: len(ranks - crying[node]) for node, ranks in voices.items()}
        missing = sum(mute.values())
        for node, few in mute.items():
            if few:
                worth = few / missing
                own = kinds[node] != "node"
                those = "it lacks" if own else f"{few} of its ranks {'lacks' if few == 1 else 'lack'}"
                why = f"{those} what the others print at the end"
                self.found[node].take("mute ranks", worth, OddNode(node, worth, why))

    # Its log as a whole

    def by_shape(self) -> None:
        """Nodes without a log, whose log ends early, that lack lines, whose numbers or counts differ from the others'."""
        run, moment, off = self._run, self._moment, self._off
        mute = silent(run)
        for odd in mute:
            self.found[odd.node].take("no log" if run.beats else "never came", len(mute) ** -0.5, odd)
        for odd in absences(run, off, moment.interval, moment.at):
            self.found[odd.node].take("early", 1.0, odd)
        for odd in drifting(run):
            self.found[odd.node].take("drifts", 1.0, odd)
        elsewhere = odd_stack(run, off, moment.at)
        if elsewhere is not None:
            ended = elsewhere.spot is not None and is_consequence(elsewhere.spot.text)
            self.found[elsewhere.node].take("apart", 0.3 if ended else 1.0, elsewhere)
        for odd in straggling(run, off, moment.at):
            self.found[odd.node].take("behind", 1.0, odd)
        for odd in lacking(run):
            if odd.node in self.found:
                self.found[odd.node].take("lacks", odd.score / 0.7, odd)
        for odd in off_values(run, moment.at, off):
            self.found[odd.node].take("values", odd.score, odd)
        weight = {name: worth for name, worth in self._fresh.items() if worth >= 0.5}
        several = min(MOST_FOREST, max(1, len(self._heard) // 3))  # of few nodes, not all differ from the others
        for place, odd in enumerate(isolated(run, weight)[:several]):
            self.found[odd.node].take("forest", 1 / (1 + place) if odd.score else 0.0, odd)

    def by_status(self) -> None:
        """The rank that ended with a different status than the others."""
        odd = odd_status(self._run)
        if odd is not None and odd.node in self.found:
            self.found[odd.node].take("status", 1.0, odd)

    def excuse_reporters(self) -> None:
        """Discount a rank that reports on another. It prints words of its own and therefore ends before the others, with another status."""
        for node in self._reporters & self.found.keys():
            worth = self.found[node].worth
            worth.update({ground: REPORTER * worth[ground] for ground in OF_A_REPORT if ground in worth})


def _at_least(ordered: Sequence[int], least: float) -> int:
    """How many numbers, given in order, are no smaller."""
    return len(ordered) - bisect_left(ordered, least)
