"""Suggests what would have kept a rule silent where it was wrong, explains why it missed incidents, and finds faults that occur together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rapidfuzz import fuzz, process, utils

from kb.learning.cases import Case
from kb.learning.discriminating_patterns import TRIED, MinedPattern, discriminate, ranked
from kb.learning.events import events_of
from kb.learning.negative_corpus import Background, background, negative_case
from kb.parsers.logs.prefixes import peel
from kb.rulebase.rule import Pattern, Rule
from kb.scanning.prefilter import ways_of

LEAST_WRONG = 2  # incidents that must have what is to be excluded
LEAST_RIGHT = 2  # incidents that must not
MOST_CASES = 12  # number compared
NEAR = 60.0  # out of 100: how similar a line and the words of a pattern must be
MOST_LINES = 4_000
LEAST_PAIRS = 5
SAME_ORDER = 0.9
_RIGHT = "right"


@dataclass(frozen=True, slots=True)
class NearestLine:
    """The line nearest to a pattern that does not find it. `score`: out of 100; `lacks`: words of the pattern that it lacks."""

    pattern: str
    line: str
    score: float
    lacks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FaultPair:
    """Two faults that co-occur: in how many incidents `cause` came before `effect`, of all that have both."""

    cause: str
    effect: str
    in_order: int
    together: int
    incidents: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cluster:
    """Similar incidents without an answer. `head`: the text that the others are similar to."""

    head: str
    incidents: tuple[int, ...]


Able = Callable[[MinedPattern], bool]


def _any(_: MinedPattern) -> bool:
    return True


def exclusion(wrong: Sequence[Case], right: Sequence[Case], able: Able = _any) -> MinedPattern | None:
    """A pattern in all incidents in which a rule was wrong and in none in which it was right; None if there is none.

    Too few of either prove nothing. `able`: whether a pattern may go into a rule.
    """
    if len(wrong) < LEAST_WRONG or len(right) < LEAST_RIGHT:
        return None
    against = background(replace(negative_case(case), fault=_RIGHT) for case in right)
    by_id = {case.id: case for case in wrong[:MOST_CASES]}
    return next((item for item in _apart(by_id, against, "") if not item.counter and able(item)), None)


def widening(
    missed: Sequence[Case], near: str, others: Background, fault: str, able: Able = _any
) -> MinedPattern | None:
    """A pattern for lines like `near` in the incidents that a rule missed, silent in those of other faults; None if there is none."""
    by_id = {case.id: case for case in missed[:MOST_CASES]}
    for item in _apart(by_id, others, fault, all_of_them=False):
        lines = [line.message for own in item.event.lines.values() for line in own]
        if not item.counter and able(item) and any(fuzz.ratio(near, line) >= NEAR for line in lines):
            return item
    return None


def _apart(
    cases: Mapping[int, Case], against: Background, fault: str, *, all_of_them: bool = True
) -> Iterator[MinedPattern]:
    """Patterns of what the cases share, each as discriminating against the other texts as possible, without a condition."""
    names = frozenset().union(*(case.names for case in cases.values()))
    events = [
        case_event
        for case_event in events_of(cases.values())
        if not all_of_them or len(case_event.support) == len(cases)
    ]
    for score, event in ranked(events, cases, against)[:TRIED]:
        found = discriminate(event, score, cases, {fault}, against, names=names)
        if found is not None and found.when is None and (not all_of_them or len(found.support) == len(cases)):
            yield found


# --- what a rule missed ----------------------------------------------------------------------------------------------


def nearest(rule: Rule, texts: Iterable[str]) -> NearestLine | None:
    """The line that comes nearest to a pattern of a rule; None if no line is near, or the pattern matches one."""
    lines = list(dict.fromkeys(_messages(texts)))[:MOST_LINES]
    best: NearestLine | None = None
    for pattern in rule.patterns:
        words = _words(pattern)
        if not words or not lines:
            continue
        found = process.extractOne(
            " ".join(words), lines, scorer=fuzz.token_set_ratio, score_cutoff=NEAR, processor=utils.default_process
        )
        if found is None:
            continue
        line, score, _ = found
        low = line.lower()
        lacks = tuple(word for word in words if word not in low)
        if best is None or score > best.score:
            best = NearestLine(pattern.name, line[:300], round(float(score), 1), lacks)
    return best


def _messages(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        for line in text.split("\n"):
            data = line[:1024].encode("utf-8", "replace")
            message = data[peel(data).end :].decode("utf-8", "replace").strip()
            if len(message) > 3:
                yield message


def _words(pattern: Pattern) -> tuple[str, ...]:
    """The literal words that a pattern asks for, in the alternative with most of them."""
    told = [pattern.literal] if pattern.literal else []
    if pattern.exception is not None:
        regexes = [item for item in (pattern.exception.type, pattern.exception.message) if item]
    else:
        regexes = [pattern.regex] if pattern.regex else []
    for regex in regexes:
        ways = [" ".join(sorted(way, key=len, reverse=True)) for way in ways_of(regex)]
        told += [max(ways, key=len)] if any(ways) else []
    return tuple(dict.fromkeys(word for text in told for word in text.lower().split() if len(word) > 2))


# --- what comes together ---------------------------------------------------------------------------------------------


def pairs(orders: Mapping[int, Sequence[str]]) -> tuple[FaultPair, ...]:
    """Faults that repeatedly occur together in one order. `orders`: incident → its faults in the order in which they were first seen.

    At least `LEAST_PAIRS` times, and nine times out of ten the same one first.
    """
    seen: dict[tuple[str, str], list[int]] = {}
    for incident, faults in sorted(orders.items()):
        named = list(dict.fromkeys(faults))
        for at, first in enumerate(named):
            for second in named[at + 1 :]:
                seen.setdefault((first, second), []).append(incident)
    found = []
    for (first, second), incidents in seen.items():
        together = len(incidents) + len(seen.get((second, first), ()))
        if len(incidents) >= LEAST_PAIRS and len(incidents) >= SAME_ORDER * together:
            found.append(FaultPair(first, second, len(incidents), together, tuple(incidents)))
    return tuple(sorted(found, key=lambda item: (-item.in_order, item.cause, item.effect)))


def clusters(texts: Mapping[int, str], alike: float = 80.0) -> tuple[Cluster, ...]:
    """Incidents grouped by how similar their texts are, each in the first group that it fits; the largest group first.

    `texts`: incident → the lines that stand out in it, masked, in a few hundred characters.
    """
    heads: list[str] = []
    groups: list[list[int]] = []
    exact: dict[str, int] = {}
    for incident, text in sorted(texts.items()):
        at = exact.get(text)
        if at is None:
            found = process.extractOne(text, heads, scorer=fuzz.token_set_ratio, score_cutoff=alike)
            at = len(heads) if found is None else found[2]
            if found is None:
                heads.append(text)
                groups.append([])
            exact[text] = at
        groups[at].append(incident)
    told = [Cluster(head, tuple(group)) for head, group in zip(heads, groups, strict=True)]
    return tuple(sorted(told, key=lambda cluster: (-len(cluster.incidents), cluster.incidents)))
