"""Compares a run with a good one: which events are new, which differ in number, and which settings differ.

Events match by their words, not by their ids alone, so that versions, paths and a different mask do not make an event new. Numbers are
compared as rates: a good run is often smaller and shorter.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kb.anomalies.core.dissent import lines_apart
from kb.anomalies.core.run import LineRef, RunEvent, RunProfile
from kb.anomalies.core.severity_words import harm, is_body, is_consequence, is_ignored, is_raised, skeleton
from kb.anomalies.nodes.drifts import NumberPlace, numbers_moving
from kb.anomalies.time.interludes import interludes
from kb.anomalies.time.repeating import step_forms

ALIKE = 0.8  # share of words that two events must have in common to match
SPARSE = 3  # fewer words than that must be equal
LONGEST = 4000  # events of an order that are aligned
LONGEST_LINE = 160  # characters of the line that is reported
IGNORED = 2000  # bytes after the head of a traceback that ends nothing
LONGER = 30.0  # times as long a good run is reported
FOREIGN = 0.35  # a good run that knows less than this share of the usual lines is of another job
NEW = 0.999  # `fresh` from which on a good run has nothing of an event
_BUILT = re.compile(r"(?i)image|commit|driver|firmware|fw_ver|version|kernel|cuda|nccl|torch|framework")


@dataclass(frozen=True, slots=True)
class EventComparison:
    """An event compared with the good run. `fresh` 0 to 1: how little the good run has of it; `known`: its lines there; why, in words.

    `excess`: how far its count on one node exceeds what the good run suggests, as a power of two. `like`: the share of words that the most
    similar event of the good run has in common with a new one.
    """

    event: str
    fresh: float
    known: int
    why: str
    excess: float = 0.0
    like: float = 0.0


@dataclass(frozen=True, slots=True)
class Baseline:
    """What a comparison needs of one good run or several: by the words of each event its lines, nodes and largest count on a node.

    `apart`: by their words the lines in which one rank differs; `failed`: the line with which it seems to have failed as well; what was printed from there on is not among its events.
    `steps`: by its words what counts its steps, and which of its numbers does; `interludes`: by the words of each line of an
    evaluation or a save what is under way after it; `moving`: as `steps`, the numbers that move on one rank only.
    """

    counts: Mapping[tuple[str, ...], tuple[int, int, int]]
    nodes: int = 1
    lines: int = 0
    label: str = ""
    order: tuple[tuple[str, ...], ...] = ()
    settings: Mapping[str, str] | None = None
    failed: str = ""
    apart: frozenset[tuple[str, ...]] = frozenset()
    steps: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    interludes: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    moving: frozenset[NumberPlace] = frozenset()

    @property
    def empty(self) -> bool:
        """Whether there is nothing to compare with."""
        return not self.counts


def baseline_of(run: RunProfile, label: str = "") -> Baseline:
    """Return what a comparison needs of a good run."""
    counts: dict[tuple[str, ...], tuple[int, int, int]] = {}
    failed, behind = _failure(run)
    for event in run.events.values():
        if event.id in behind:
            continue
        key = skeleton(event.text)
        lines, nodes, most = counts.get(key, (0, 0, 0))
        here = max((node.count for node in event.nodes.values()), default=0)
        counts[key] = (lines + event.count, max(nodes, len(event.nodes)), max(most, here))
    order = keys_in_order(run)
    forms, steps = step_forms(run)
    return Baseline(
        counts, max(1, len(run.heard)), sum(voice.lines for voice in run.voices), label, order, run.settings, failed,
        lines_apart(run), forms, interludes(run, run.beats or steps),
        numbers_moving(run),
    )  # fmt: skip


def _failure(run: RunProfile) -> tuple[str, frozenset[str]]:
    """The first exception after which its source prints nothing usual, "" if there is none or nobody was stopped by it.

    With it the events that came no earlier than that in all their sources: they are not usual.
    """
    usual = max(1, len(run.heard)) / 2
    last: dict[str, int] = defaultdict(int)
    steady = {beat.spot.source: beat.spot.offset for beat in run.beats}
    for event in run.events.values():
        if (
            len(event.nodes) >= usual
            and event.count > 2 * len(event.nodes)
            and not _is_end(event)
            and not is_body(event.text)
        ):
            for spot in _spots(event):
                last[spot.source] = max(last[spot.source], spot.offset, steady.get(spot.source, 0))
    ends = [
        (line_ref, is_raised(event.text))
        for event in run.events.values()
        if _is_end(event)
        for line_ref in _spots(event)
        if line_ref.offset > last[line_ref.source]
    ]
    ignored: dict[str, list[int]] = defaultdict(list)
    for event in run.events.values():
        if is_ignored(event.text):
            for spot in _spots(event):
                ignored[spot.source].append(spot.offset)
    raised = [
        number
        for number, was_raised in ends
        if was_raised and not any(0 < number.offset - offset < IGNORED for offset in ignored[number.source])
    ]
    if not raised or len(raised) == len(ends):  # nobody stopped the others
        return "", frozenset()
    first = min(raised, key=lambda item: (item.time is None, item.time or 0.0, item.source, item.offset))
    cut: dict[str, int] = {}
    for number, _ in ends:
        cut[number.source] = min(cut.get(number.source, number.offset), number.offset)
    behind = {
        event.id
        for event in run.events.values()
        if all(spot.offset >= cut.get(spot.source, math.inf) for spot in _spots(event))
    }
    return first.text[:LONGEST_LINE], frozenset(behind)


def _is_end(event: RunEvent) -> bool:
    return is_raised(event.text) or is_consequence(event.text)


def _spots(event: RunEvent) -> list[LineRef]:
    return [spot for seen in event.nodes.values() for spot in seen.spots]


def _ordered(run: RunProfile) -> list[RunEvent]:
    def first(event: RunEvent) -> tuple[float, str]:
        times = [node.spots[0].time for node in event.nodes.values() if node.spots and node.spots[0].time is not None]
        return (min(times) if times else math.inf, event.id)

    return sorted(run.events.values(), key=first)


def pooled(runs: Sequence[Baseline], label: str = "") -> Baseline:
    """Several good runs as one: an event is known if any of them has it."""
    counts: dict[tuple[str, ...], tuple[int, int, int]] = {}
    for run in runs:
        for key, (lines, nodes, most) in run.counts.items():
            old = counts.get(key, (0, 0, 0))
            counts[key] = (max(old[0], lines), max(old[1], nodes), max(old[2], most))
    best = max(runs, key=lambda run: len(run.counts), default=None)
    return Baseline(
        counts,
        max((run.nodes for run in runs), default=1),
        max((run.lines for run in runs), default=0),
        label,
        best.order if best else (),
        best.settings if best else None,
        next((run.failed for run in runs if run.failed), ""),
        frozenset[tuple[str, ...]]().union(*(run.apart for run in runs)),
        moving=frozenset[NumberPlace]().union(*(run.moving for run in runs)),
    )


class Lookup:
    """Finds the event of a good run that corresponds to an event of another run."""

    def __init__(self, keys: Iterable[tuple[str, ...]]) -> None:
        self._exact: dict[frozenset[str], tuple[str, ...]] = {}
        self._holding: dict[str, list[tuple[str, ...]]] = defaultdict(list)
        for key in sorted(set(keys)):
            words = frozenset(key)
            self._exact.setdefault(words, key)
            for word in words:
                self._holding[word].append(key)

    def find(self, key: tuple[str, ...]) -> tuple[str, ...] | None:
        """The event with the same words, or nearly the same; None if there is none."""
        words = frozenset(key)
        if words in self._exact:
            return self._exact[words]
        if len(words) <= SPARSE:
            return None
        # Similar ones share all but a few of the words, so at least one of the rarest few.
        rare = sorted(words, key=lambda word: (len(self._holding.get(word, ())), word))
        few = rare[: int(len(words) * (1 - ALIKE)) + 2]
        best, most = None, ALIKE
        for other in {item for word in few for item in self._holding.get(word, ())[:200]}:
            theirs = frozenset(other)
            share = len(words & theirs) / len(words | theirs)
            if share > most or (share == most and best is not None and other < best):
                best, most = other, share
        return best

    def nearest(self, key: tuple[str, ...]) -> float:
        """The share of words in common with the most similar event, among those events that share one of its rarer words."""
        words = frozenset(key)
        rare = sorted(words, key=lambda word: (len(self._holding.get(word, ())), word))
        others = {item for word in rare[:4] for item in self._holding.get(word, ())[:50]}
        return max((len(words & set(other)) / len(words | set(other)) for other in others), default=0.0)


def compare(run: RunProfile, good: Baseline) -> Mapping[str, EventComparison]:
    """Each event of a run compared with a good run."""
    lookup = Lookup(good.counts)
    size = max(1.0, len(run.heard) / max(1, good.nodes))
    each = sum(voice.lines for voice in run.voices) / max(1, len(run.heard))
    length = max(1.0, each / max(1.0, good.lines / max(1, good.nodes)))
    found = {}
    for event in run.events.values():
        key = lookup.find(skeleton(event.text))
        if key is None:
            found[event.id] = EventComparison(
                event.id, 1.0, 0, "not in the last good run", like=lookup.nearest(skeleton(event.text))
            )
            continue
        lines, nodes, most = good.counts[key]
        here = max((node.count for node in event.nodes.values()), default=0)
        fresh = _more(here, most * length)
        wide = _more(len(event.nodes), nodes * size) if len(event.nodes) > 1 else 0.0
        why = f"{here} times on one node, at most {most} in the last good run" if fresh else ""
        excess = min(6.0, max(0.0, math.log2((here + 1) / (most * length + 1))))
        found[event.id] = EventComparison(event.id, max(fresh, wide * 0.5), lines, why, excess)
    return found


def _more(here: float, usual: float) -> float:
    """0 to 1: how far a count exceeds the usual one; a few more may be chance."""
    if here <= usual + 2 * math.sqrt(usual) + 1:
        return 0.0
    return min(0.8, math.log2(here / max(usual, 0.5)) / 5)


def is_foreign(run: RunProfile, good: Baseline) -> bool:
    """Whether the good run seems to be of a different job: it has few of the lines that most nodes of this run print."""
    usual = [
        event
        for event in run.events.values()
        if len(event.nodes) * 2 >= len(run.heard)
        and len(skeleton(event.text)) > 1
        and harm(event.text, event.level) < 0.4
        and not is_consequence(event.text)
    ]
    if len(usual) < 8:
        return False
    lookup, back = Lookup(good.counts), Lookup(skeleton(event.text) for event in run.events.values())
    shared = sum(lookup.find(skeleton(item.text)) is not None for item in usual) / len(usual)
    wide = [key for key, (_, nodes, _) in good.counts.items() if nodes * 2 >= good.nodes]
    found = sum(back.find(key) is not None for key in wide) / max(1, len(wide))
    return shared < FOREIGN and found < FOREIGN


def doubts(run: RunProfile, good: Baseline) -> list[str]:
    """Describe what makes a comparison with a good run less certain."""
    said = []
    if good.failed:
        said.append(
            f"the good run seems to have failed as well ({good.failed!r}); its last lines do not count as normal"
        )
    here = sum(voice.lines for voice in run.voices) / max(1, len(run.heard))
    there = good.lines / good.nodes
    if there > LONGER * max(1.0, here):
        said.append(
            f"the good run is {there / max(1.0, here):.0f} times as long; its lines count as normal however often they occur"
        )
    return said


def out_of_order(run: RunProfile, good: Baseline) -> tuple[str, ...]:
    """Events that the good run has too, but at another place in the order of first occurrences.

    Both orders are aligned so that as many events as possible keep their place: L4 removes these when it matches the runs in order of time.
    """
    keys = {skeleton(item.text): item.id for item in reversed(_ordered(run))}
    places = {key: place for place, key in enumerate(good.order)}
    mine = [key for key in keys_in_order(run) if key in places]
    kept = _rising([places[key] for key in mine])
    return tuple(keys[key] for place, key in enumerate(mine) if place not in kept)


def keys_in_order(run: RunProfile) -> tuple[tuple[str, ...], ...]:
    """The words of a run's events in the order in which they first came, as many as are aligned."""
    return tuple(dict.fromkeys(skeleton(item.text) for item in _ordered(run)))[:LONGEST]


def _rising(values: Sequence[int]) -> frozenset[int]:
    """The places of a longest increasing subsequence of distinct values."""
    ends: list[int] = []  # the place of the smallest end of an increasing subsequence of each length
    before: list[int] = []
    lows: list[int] = []
    for place, value in enumerate(values):
        at = bisect_left(lows, value)
        before.append(ends[at - 1] if at else -1)
        if at == len(lows):
            lows.append(value)
            ends.append(place)
        else:
            lows[at], ends[at] = value, place
    found = set()
    place = ends[-1] if ends else -1
    while place >= 0:
        found.add(place)
        place = before[place]
    return frozenset(found)


def changed(run: RunProfile, good: Baseline) -> tuple[tuple[str, str, str], ...]:
    """Settings that differ: name, value in the good run, value now; what the job was built of first.

    Options that only one has are included; "" for none.
    """
    before, now = good.settings or {}, run.settings
    names = {number for number in before if number in now}
    if any(number.startswith("--") for number in before) and any(item.startswith("--") for item in now):
        names |= {number for number in (*before, *now) if number.startswith("--")}
    order = sorted(names, key=lambda name: (_BUILT.search(name) is None, name))
    return tuple((name, before.get(name, ""), now.get(name, "")) for name in order if before.get(name) != now.get(name))


@dataclass(frozen=True, slots=True)
class DifferingSetting:
    """A setting that differs on some nodes of a run: its name, their value and names, the others' value."""

    name: str
    value: str
    nodes: tuple[str, ...]
    usual: str


def differing_settings(run: RunProfile) -> tuple[DifferingSetting, ...]:
    """Settings that differ on a third of the nodes at most, those of the fewest nodes first."""
    found = []
    for name, by_node in run.own_settings.items():
        counts = Counter(by_node.values())
        usual, most = counts.most_common(1)[0]
        for value in sorted(counts):
            if value != usual and counts[value] * 2 <= most:
                nodes = tuple(node for node, item in by_node.items() if item == value)
                found.append(DifferingSetting(name, value, nodes, usual))
    return tuple(
        sorted(found, key=lambda item: (len(item.nodes), _BUILT.search(item.name) is None, item.name, item.value))
    )
