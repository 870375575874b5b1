"""Near misses: lines of other incidents and good runs with the words of a pattern but another meaning."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kb.anomalies.core.severity_words import skeleton
from kb.learning.negative_corpus import Background, line_at, lowered
from kb.regex.pattern import compiled

MOST = 3
LOOKED_AT = 400  # texts
LONGEST = 400


def near_misses(
    patterns: Sequence[tuple[str, Sequence[str]]], background: Background, besides: Collection[str]
) -> tuple[str, ...]:
    """A few different lines that share words with a pattern that does not find them, the nearest first.

    None is from an incident that was closed as one of `besides`, or not at all: it may be another wording of the same fault.
    """
    found: dict[tuple[str, ...], tuple[float, str]] = {}
    for _, words in patterns:
        telling = sorted(
            {word for word in words if len(word) > 3}, key=lambda item: (-background.weights.of(item), item)
        )
        for word in telling[:3]:
            for line in _lines_with(word, background, besides):
                shared = [item for item in telling if item in line]
                if len(shared) < min(2, len(telling)) or any(compiled(pair).find(line) for pair, _ in patterns):
                    continue
                share = sum(background.weights.of(item) for item in shared)
                key = skeleton(line)
                if (share, line) > found.get(key, (0.0, "")):
                    found[key] = (share, line)
    best = sorted(found.values(), key=lambda pair: (-pair[0], pair[1]))
    return tuple(line for _, line in best[:MOST])


def _lines_with(word: str, background: Background, besides: Collection[str]) -> list[str]:
    """The first line of each text that has the word."""
    low = lowered(word)
    found = []
    for item in [
        other
        for other in background.others
        if low in other.words and other.fault is not None and other.fault not in besides
    ][:LOOKED_AT]:
        for text in item.sections:
            place = text.find(word)
            if place >= 0:
                found.append(line_at(text, place)[:LONGEST])
                break
    return found
