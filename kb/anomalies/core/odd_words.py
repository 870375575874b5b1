"""Finds the rank that prints a line of a start in other words than all others: a setting, a version, the name of a place."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher

from kb.anomalies.core.run import LineRef, RunEvent, RunProfile
from kb.anomalies.core.severity_words import is_body, is_consequence, is_raised, skeleton
from kb.anomalies.core.stamps import STAMPS

ONCE = 2  # lines of a rank up to which they are those of a start
ALIKE = 0.6  # share of the words that two lines must have in common
MOST_PAIRS = 40  # lines of one rank alone that are compared
MOST_TOKENS = 40
_BREAK = re.compile(r"[\s=,;()\[\]{}\"'|]+")
_NUMBER = re.compile(r"[-+]?[\d.]*\d(?:[eE][-+]?\d+)?[A-Za-z%]{0,3}")  # values are compared elsewhere
_VERSION = re.compile(r"v?\d+\.\d+(?:\.\w+)+[\w.+-]*")
OddWord = tuple[
    tuple[str, ...], str, str, str, LineRef
]  # the words of the line, the rank, its word, that of all others, its line


def odd_words(run: RunProfile, ranks: Sequence[str]) -> Iterator[OddWord]:
    """Yield the lines of a start in which one of the ranks has another word, with that of all others."""
    every = frozenset(ranks)
    alone: dict[str, list[RunEvent]] = defaultdict(list)
    rest: dict[str, list[RunEvent]] = defaultdict(list)
    for event in sorted(run.events.values(), key=lambda item: item.id):
        nodes = event.nodes.keys()
        often = max((seen.count for seen in event.nodes.values()), default=0)
        if (
            often > ONCE
            or not nodes <= every
            or is_body(event.text)
            or is_raised(event.text)
            or is_consequence(event.text)
        ):
            continue
        if len(nodes) == len(every):
            yield from _of_one_line(event)
        elif len(nodes) == 1:
            alone[next(iter(nodes))].append(event)
        elif len(nodes) == len(every) - 1:
            rest[next(iter(every - nodes))].append(event)
    for node, common in sorted(rest.items()):
        for usual in common:
            for own in alone.get(node, ())[:MOST_PAIRS]:
                found = _apart(own, usual, node)
                if found is not None:
                    yield found


def _of_one_line(event: RunEvent) -> Iterator[OddWord]:
    """Yield the words of one rank that differ from those which all others have in the same place."""
    lines = {node: seen.spots[0] for node, seen in event.nodes.items()}
    tokens = {node: _tokens(spot.text) for node, spot in lines.items()}
    width = {len(several) for several in tokens.values()}
    if len(width) != 1:
        return
    for place in range(min(*width, MOST_TOKENS)):
        column = {node: several[place] for node, several in tokens.items()}
        odd = _odd(column)
        if odd is not None:
            node, own, usual = odd
            yield skeleton(event.text), node, own, usual, lines[node]


def _odd(column: Mapping[str, str]) -> tuple[str, str, str] | None:
    counts = Counter(column.values())
    if len(counts) != 2 or min(counts.values()) != 1:
        return None
    (usual, _), (own, _) = counts.most_common(2)
    numbers = _NUMBER.fullmatch(own) and not _VERSION.fullmatch(own)
    return None if numbers else (next(node for node, word in column.items() if word == own), own, usual)


def _apart(own: RunEvent, usual: RunEvent, node: str) -> OddWord | None:
    """What differs between a line of one rank and a similar one of all others; None if they are not similar."""
    here, there = own.text.split(), usual.text.split()
    if own.level != usual.level or not here or SequenceMatcher(None, here, there, autojunk=False).ratio() < ALIKE:
        return None
    spot, other = own.nodes[node].spots[0], next(iter(usual.nodes.values())).spots[0]
    mine, theirs = _tokens(spot.text), _tokens(other.text)
    blocks = SequenceMatcher(None, mine, theirs, autojunk=False).get_opcodes()
    changed = [(mine[a:b], theirs[c:d]) for kind, a, b, c, d in blocks if kind != "equal"]
    told = [(" ".join(one), " ".join(two)) for one, two in changed]
    words = [(one, two) for one, two in told if not (_NUMBER.fullmatch(one) and _NUMBER.fullmatch(two))]
    return (skeleton(usual.text), node, *(words or told)[-1], spot) if told else None


def _tokens(line: str) -> list[str]:
    return [token for token in _BREAK.split(STAMPS.sub(" ", line)) if token]
