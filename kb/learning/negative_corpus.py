"""The texts that a candidate is tested against: incidents of other faults, good runs, noise; where a regex matches or nearly does."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from kb.anomalies.core.severity_words import skeleton
from kb.learning.cases import Case, Observation
from kb.learning.tokenizer import WordWeights
from kb.regex.pattern import compiled

MOST_NEAR = 3  # near misses
LOOKED_AT = 400  # texts
LONGEST_NEAR = 400  # characters of a line
LEAST_TELLING = 0.5  # weight of a word that a near miss shares
_WORD = re.compile(r"[A-Za-z_]{2,}(?:\d+_?[A-Za-z_]+)*")


@dataclass(frozen=True, slots=True, eq=False)
class NegativeText:
    """A text to test a candidate against. `fault`: as it was closed, "healthy" for a good run, None if nobody said.

    `sections`: its text by source; `words`: all words of it, in lower case.
    """

    id: int
    fault: str | None
    sections: Sequence[str]
    words: frozenset[str]
    stage: str | None = None
    observed: tuple[Observation, ...] = ()

    @property
    def healthy(self) -> bool:
        """Whether it is a good run."""
        return self.fault == "healthy"


def negative_case(case: Case) -> NegativeText:
    """An incident as the miner tests candidates against it."""
    return negative_text(case.id, case.fault, case.texts, stage=case.stage, observed=case.observed)


def negative_text(
    number: int,
    fault: str | None,
    texts: Mapping[str, str],
    *,
    stage: str | None = None,
    observed: tuple[Observation, ...] = (),
) -> NegativeText:
    """A text as the miner tests candidates against it."""
    words = {lowered(word) for text in texts.values() for word in set(_WORD.findall(text))}
    return NegativeText(number, fault, tuple(texts.values()), frozenset(words), stage, observed)


@lru_cache(1 << 17)
def lowered(word: str) -> str:
    """The word in lower case, as one shared object: a store has few different words, each many times."""
    return word.lower().strip("_")


@dataclass(frozen=True, slots=True, eq=False)
class Background:
    """All texts that a candidate is tested against."""

    others: tuple[NegativeText, ...] = ()
    weights: WordWeights = field(default_factory=WordWeights)

    def spoken(self, regex: str, needles: Iterable[str], besides: Collection[str]) -> dict[int, tuple[str, ...]]:
        """Index of each text in which the regex matches → the first line of each source. `needles`: words that every match has.

        Texts closed as one of `besides` are skipped, and so are those that nobody has classified.
        """
        wanted = frozenset(lowered(word) for word in needles if _WORD.fullmatch(word))
        search = compiled(regex).find
        found = {}
        for index, item in enumerate(self.others):
            if item.fault is None or item.fault in besides or not wanted <= item.words:
                continue
            lines = tuple(line_at(text, hit.start()) for text in item.sections if (hit := search(text)) is not None)
            if lines:
                found[index] = lines
        return found


def background(others: Iterable[NegativeText]) -> Background:
    """The texts, and how many of them contain each word."""
    kept = tuple(others)
    counts: Counter[str] = Counter()
    for text in kept:
        counts.update(text.words)
    return Background(kept, WordWeights(len(kept), counts))


def line_at(text: str, place: int) -> str:
    """The line around a place in a text."""
    end = text.find("\n", place)
    return text[text.rfind("\n", 0, place) + 1 : len(text) if end < 0 else end]


# -- near misses: lines with the words of a pattern but another meaning


def near_misses(
    patterns: Sequence[tuple[str, Sequence[str]]], background: Background, besides: Collection[str]
) -> tuple[str, ...]:
    """A few different lines that share words with a pattern that does not find them, the nearest first.

    None is from an incident that was closed as one of `besides`, or not at all: it may be another wording of the same fault.
    """
    found: dict[tuple[str, ...], tuple[float, str]] = {}
    for _, words in patterns:
        telling = sorted(
            {word for word in words if len(word) > 3 and background.weights.of(word) > LEAST_TELLING},
            key=lambda item: (-background.weights.of(item), item),
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
    return tuple(line for _, line in best[:MOST_NEAR])


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
                found.append(line_at(text, place)[:LONGEST_NEAR])
                break
    return found
