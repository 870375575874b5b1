"""The known faults whose rules share the rarest words with a line. They hint where to look but are not a diagnosis."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from kb.regex.lazy import lazy_compile
from kb.rulebase.rule import Rule
from kb.rulebase.texts import in_every_case
from kb.values import dataclass

MOST = 3
FEWEST_SHARED = 2  # minimum number of words in common; a single one means nothing
LEAST_SHARE = 0.5  # share of the total weight of the lines' words that a rule must cover
_WORD = lazy_compile(r"[A-Za-z]{4,}")
_SYNTAX = lazy_compile(
    r"\\[A-Za-z]|\(\?P<\w+>|\(\?[a-z]*[:=!<]*|\{[\d,]+\}"
)  # regex syntax, not words of the line that the regex matches
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
    """A rule with words in common: its fault class, its title, and the shared words, rarest first."""

    fault: str
    rule: str
    title: str
    shared: tuple[str, ...]


def nearest_faults(lines: Sequence[str], rules: Iterable[Rule]) -> tuple[NearFault, ...]:
    """Return the closest rules, from at most `MOST` fault classes; none if no rule is close."""
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
        found.setdefault(rule.fault, NearFault(rule.fault, rule.id, in_every_case(rule.title), shared))
    return tuple(found.values())[:MOST]


def _words(text: str) -> Iterator[str]:
    """Yield the words of a text, splitting class names."""
    for word in _WORD.findall(_CAMEL.sub(" ", text)):
        low = word.lower()
        if low not in _COMMON:
            yield low


def _texts(rule: Rule) -> Iterator[str]:
    """Yield a rule's texts and the text of its patterns without regex syntax."""
    yield rule.title
    for pattern in rule.patterns:
        for text in (pattern.literal, pattern.regex, pattern.confirm):
            yield _SYNTAX.sub(" ", text or "")
        if pattern.exception is not None:
            for part in (pattern.exception.type, pattern.exception.message):
                yield _SYNTAX.sub(" ", part or "")
