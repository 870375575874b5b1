"""Against a good run: which events it does not have, which come in other numbers, and what was set otherwise.

Events match by their words, not by their ids alone, so that versions, paths and a different mask do not make an event new.
Numbers are compared as rates: a good run is often smaller and shorter.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from kb.l4.run import Event, Run
from kb.l4.words import harm, is_consequence, skeleton

ALIKE = 0.8  # share of words that two events must have in common to be one
SPARSE = 3  # fewer words than that must be equal
LONGEST = 4000  # events of an order that are aligned
FOREIGN = 0.35  # a good run that knows less than this share of the usual lines is of another job


@dataclass(frozen=True, slots=True)
class Compared:
    """An event against the good run. `fresh` 0 to 1: how little the good run has of it; `known` lines that it has; why, in words."""

    event: str
    fresh: float
    known: int
    why: str


@dataclass(frozen=True, slots=True)
class Baseline:
    """A good run, or a pool of such, as far as a comparison needs it: by the words of each event its lines, nodes and most by node."""

    counts: Mapping[tuple[str, ...], tuple[int, int, int]]
    nodes: int = 1
    lines: int = 0
    label: str = ""
    order: tuple[tuple[str, ...], ...] = ()
    settings: Mapping[str, str] | None = None

    @property
    def empty(self) -> bool:
        """Whether there is nothing to compare with."""
        return not self.counts


def baseline_of(run: Run, label: str = "") -> Baseline:
    """What a comparison needs of a good run."""
    counts: dict[tuple[str, ...], tuple[int, int, int]] = {}
    for event in run.events.values():
        key = skeleton(event.text)
        lines, nodes, most = counts.get(key, (0, 0, 0))
        here = max((one.count for one in event.nodes.values()), default=0)
        counts[key] = (lines + event.count, max(nodes, len(event.nodes)), max(most, here))
    order = tuple(dict.fromkeys(skeleton(one.text) for one in _ordered(run)))[:LONGEST]
    return Baseline(counts, max(1, len(run.heard)), sum(one.lines for one in run.voices), label, order, run.settings)


def _ordered(run: Run) -> list[Event]:
    def first(event: Event) -> tuple[float, str]:
        times = [one.spots[0].time for one in event.nodes.values() if one.spots and one.spots[0].time is not None]
        return (min(times) if times else math.inf, event.id)

    return sorted(run.events.values(), key=first)


def pooled(runs: Sequence[Baseline], label: str = "") -> Baseline:
    """Several good runs as one: an event is known where any of them has it."""
    counts: dict[tuple[str, ...], tuple[int, int, int]] = {}
    for one in runs:
        for key, (lines, nodes, most) in one.counts.items():
            old = counts.get(key, (0, 0, 0))
            counts[key] = (max(old[0], lines), max(old[1], nodes), max(old[2], most))
    best = max(runs, key=lambda one: len(one.counts), default=None)
    return Baseline(
        counts,
        max((one.nodes for one in runs), default=1),
        max((one.lines for one in runs), default=0),
        label,
        best.order if best else (),
        best.settings if best else None,
    )


class Lookup:
    """Finds the event of a good run that an event of another run is."""

    def __init__(self, keys: Iterable[tuple[str, ...]]) -> None:
        self._exact: dict[frozenset[str], tuple[str, ...]] = {}
        self._holding: dict[str, list[tuple[str, ...]]] = defaultdict(list)
        for key in sorted(set(keys)):
            words = frozenset(key)
            self._exact.setdefault(words, key)
            for word in words:
                self._holding[word].append(key)

    def find(self, key: tuple[str, ...]) -> tuple[str, ...] | None:
        """The event with the same words, or nearly the same; None where there is none."""
        words = frozenset(key)
        if words in self._exact:
            return self._exact[words]
        if len(words) <= SPARSE:
            return None
        # Near ones share all but a few of the words, so one of the rarest few is among what they share.
        rare = sorted(words, key=lambda word: (len(self._holding.get(word, ())), word))
        few = rare[: int(len(words) * (1 - ALIKE)) + 2]
        best, most = None, ALIKE
        for other in {one for word in few for one in self._holding.get(word, ())[:200]}:
            theirs = frozenset(other)
            share = len(words & theirs) / len(words | theirs)
            if share > most or (share == most and best is not None and other < best):
                best, most = other, share
        return best


def compare(run: Run, good: Baseline) -> Mapping[str, Compared]:
    """Each event of a run against a good run."""
    lookup = Lookup(good.counts)
    size = max(1.0, len(run.heard) / max(1, good.nodes))
    each = sum(one.lines for one in run.voices) / max(1, len(run.heard))
    length = max(1.0, each / max(1.0, good.lines / max(1, good.nodes)))
    found = {}
    for event in run.events.values():
        key = lookup.find(skeleton(event.text))
        if key is None:
            found[event.id] = Compared(event.id, 1.0, 0, "not in the last good run")
            continue
        lines, nodes, most = good.counts[key]
        here = max((one.count for one in event.nodes.values()), default=0)
        fresh = _more(here, most * length)
        wide = _more(len(event.nodes), nodes * size) if len(event.nodes) > 1 else 0.0
        why = f"{here} times on one node, {most} at most in the last good run" if fresh else ""
        found[event.id] = Compared(event.id, max(fresh, wide * 0.5), lines, why)
    return found


def _more(here: float, usual: float) -> float:
    """0 to 1: how far a count is beyond the usual one; a chance of a few more says little."""
    if here <= usual + 2 * math.sqrt(usual) + 1:
        return 0.0
    return min(0.8, math.log2(here / max(usual, 0.5)) / 5)


def is_foreign(run: Run, good: Baseline) -> bool:
    """Whether the good run seems to be of another job: it knows few of the lines that most nodes of this one print."""
    usual = [
        one
        for one in run.events.values()
        if len(one.nodes) * 2 >= len(run.heard)
        and len(skeleton(one.text)) > 1
        and harm(one.text, one.level) < 0.4
        and not is_consequence(one.text)
    ]
    if len(usual) < 8:
        return False
    lookup, back = Lookup(good.counts), Lookup(skeleton(one.text) for one in run.events.values())
    shared = sum(lookup.find(skeleton(one.text)) is not None for one in usual) / len(usual)
    wide = [key for key, (_, nodes, _) in good.counts.items() if nodes * 2 >= good.nodes]
    found = sum(back.find(key) is not None for key in wide) / max(1, len(wide))
    return shared < FOREIGN and found < FOREIGN


def out_of_order(run: Run, good: Baseline) -> tuple[str, ...]:
    """Events that the good run has too, but at another place in the order of first occurrences."""
    keys = {skeleton(one.text): one.id for one in reversed(_ordered(run))}
    mine = [key for key in dict.fromkeys(skeleton(one.text) for one in _ordered(run)) if key in set(good.order)][
        :LONGEST
    ]
    theirs = [key for key in good.order if key in set(mine)]
    matcher = SequenceMatcher(None, theirs, mine, autojunk=False)
    kept = {key for block in matcher.get_matching_blocks() for key in mine[block.b : block.b + block.size]}
    return tuple(keys[key] for key in mine if key not in kept)


def changed(run: Run, good: Baseline) -> tuple[tuple[str, str, str], ...]:
    """Settings that differ: name, value in the good run, value now. Of options also those that only one has; "" for none."""
    before, now = good.settings or {}, run.settings
    names = {one for one in before if one in now}
    if any(one.startswith("--") for one in before) and any(one.startswith("--") for one in now):
        names |= {one for one in (*before, *now) if one.startswith("--")}
    return tuple(
        (name, before.get(name, ""), now.get(name, "")) for name in sorted(names) if before.get(name) != now.get(name)
    )
