"""The known faults whose rules share the rarest words with a line: a hint where to look, no diagnosis."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kb.regex.lazy import lazy_compile
from kb.rulebase.rule import Rule

MOST = 3
FEWEST_SHARED = 2  # words: one in common means nothing
LEAST_SHARE = 0.5  # of the weight of the lines' words that a rule must share
_WORD = lazy_compile(r"[A-Za-z]{4,}")
_SYNTAX = lazy_compile(
    r"\\[A-Za-z]|\(\?P<\w+>|\(\?[a-z]*[:=!<]*|\{[\d,]+\}"
)  # of a regex: no words of the line that it finds
_CAMEL = lazy_compile(r"(?<=[a-z])(?=[A-Z])")
_COMMON = frozenset(
    {
        "error",
        "errors",
        "exception",
        "failed",
        "fatal",
        "critical",
        "line",
        "file",
        "rank",
        "this",
        "that",
        "with",
        "from",
    }
    | {"errno", "oserror", "runtime", "value", "invalid", "argument"}
)


@dataclass(frozen=True, slots=True)
class NearFault:
    """A rule with words in common: its fault class, its title, and the words, the rarest first."""

    fault: str
    rule: str
    title: str
    shared: tuple[str, ...]


def nearest_faults(lines: Sequence[str], rules: Iterable[Rule]) -> tuple[NearFault, ...]:
    """Return the rules of at most `MOST` fault classes that share most with the lines; none where nothing is near."""
    wanted = frozenset(word for line in lines for word in _words(line))
    vocabularies = [(rule, frozenset(_words(" ".join(_texts(rule))))) for rule in rules if not rule.fallback]
    often = Counter(word for _, words in vocabularies for word in words)
    weight = {word: math.log((1 + len(vocabularies)) / (1 + often[word])) for word in wanted}
    total = sum(weight.values())
    scored = []
    for rule, words in vocabularies:
        shared = tuple(sorted(wanted & words, key=lambda word: (-weight[word], word)))
        score = sum(weight[word] for word in shared)
        if len(shared) >= FEWEST_SHARED and score >= LEAST_SHARE * total:
            scored.append((score, rule, shared))
    found: dict[str, NearFault] = {}
    for _, rule, shared in sorted(scored, key=lambda item: (-item[0], item[1].id)):
        found.setdefault(rule.fault, NearFault(rule.fault, rule.id, rule.title, shared))
    return tuple(found.values())[:MOST]


def _words(text: str) -> Iterator[str]:
    """Yield the words of a text, class names taken apart."""
    for word in _WORD.findall(_CAMEL.sub(" ", text)):
        low = word.lower()
        if low not in _COMMON:
            yield low


def _texts(rule: Rule) -> Iterator[str]:
    """Yield what a rule says and looks for, without the syntax of its patterns."""
    yield rule.title
    for pattern in rule.patterns:
        for text in (pattern.literal, pattern.regex, pattern.confirm):
            yield _SYNTAX.sub(" ", text or "")
        if pattern.exception is not None:
            for part in (pattern.exception.type, pattern.exception.message):
                yield _SYNTAX.sub(" ", part or "")
