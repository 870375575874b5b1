"""The known faults whose rules share the rarest words with a line. They hint where to look but are not a diagnosis."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from kb.regex.lazy import lazy_compile
from kb.rulebase.rule import Rule
from kb.rulebase.texts import in_every_case
from kb.values import dataclass

MOST = 3
FEWEST_SHARED = 2  # minimum number of words in common; a single one means nothing
# Weight of the words in common, in words that one rule alone has. Of 400 labelled failures, each compared with the rules that do
# not match it, 29 reach it in one alternative of a rule, and the nearest class is right in 26; at 1.5, in 47 of 67. Half of the
# weight of the line's words, in all alternatives together, was right in 122 of 232.
LEAST_RARE = 1.86
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
    vocabularies = [(rule, [frozenset(_words(text)) for text in _texts(rule)]) for rule in rules if not rule.fallback]
    often = Counter(word for _, parts in vocabularies for word in frozenset[str]().union(*parts))
    weight = {word: math.log((1 + len(vocabularies)) / (1 + often[word])) for word in wanted}
    least = LEAST_RARE * math.log((1 + len(vocabularies)) / 2)
    scored = []
    for rule, parts in vocabularies:
        score, common = max(((_weighed(wanted & part, weight), wanted & part) for part in parts), key=_by_score)
        if len(common) >= FEWEST_SHARED and score >= least:
            scored.append((score, rule, tuple(sorted(common, key=lambda word: (-weight[word], word)))))
    found: dict[str, NearFault] = {}
    for _, rule, shared in sorted(scored, key=lambda item: (-item[0], item[1].id)):
        found.setdefault(rule.fault, NearFault(rule.fault, rule.id, in_every_case(rule.title), shared))
    return tuple(found.values())[:MOST]


def _weighed(words: Collection[str], weight: Mapping[str, float]) -> float:
    return sum(weight[word] for word in words)


def _by_score(item: tuple[float, frozenset[str]]) -> float:
    return item[0]


def _words(text: str) -> Iterator[str]:
    """Yield the words of a text, splitting class names."""
    for word in _WORD.findall(_CAMEL.sub(" ", text)):
        low = word.lower()
        if low not in _COMMON:
            yield low


def _texts(rule: Rule) -> Iterator[str]:
    """Yield a rule's title and each alternative of its patterns, without regex syntax: words of several say little together."""
    yield rule.title
    for pattern in rule.patterns:
        for text in (pattern.literal, pattern.regex, pattern.confirm):
            yield from _alternatives(text or "")
        if pattern.exception is not None:
            kind = pattern.exception.type or ""
            own = kind if "|" not in kind else ""  # one of several classes says little of each message
            yield from (f"{_SYNTAX.sub(' ', own)} {part}" for part in _alternatives(pattern.exception.message or ""))


def _alternatives(regex: str) -> Iterator[str]:
    yield from (_SYNTAX.sub(" ", part) for part in regex.split("|"))
