"""The real failures that come nearest to the event of a drafted rule: test logs of other rules, on which it must be silent.

Near misses that are made by rule share the words of the event; these are what programs truly wrote when something else failed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bot.authoring.selftest import tests_of
from bot.learning.drafts.edge_logs import Speaks
from kb.learning.messages import message_in, without_prefix
from kb.learning.tokenizer import PLAIN
from kb.parsers.logs.prefixes import peel
from kb.rulebase.rule import Rule

MOST = 3  # neighbours
LEAST = 3  # words that a neighbour shares
LONGEST = 400  # characters of a line
MOST_BYTES = 20_000  # of a test log
_WORD = re.compile(r"[A-Za-z]{3,}")
_LEAST_LETTERS = 12


@dataclass(frozen=True, slots=True)
class Example:
    """A line of a test log on which a rule fires, with the rule and the class that it names."""

    rule: str
    fault: str
    line: str


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The nearest examples on which the rule is silent, those on which it fires, and the logs of the former for `silent/`."""

    silent: tuple[Example, ...] = ()
    fires: tuple[Example, ...] = ()
    logs: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def figures(self) -> tuple[tuple[str, str], ...]:
        """A row for a table; none without neighbours."""
        every = (*self.silent, *self.fires)
        if not every:
            return ()
        named = ", ".join(f"{item.rule} ({item.fault})" for item in every)
        return (
            ("Nearest failures of other rules on which it is silent", f"{len(self.silent)} of {len(every)}: {named}"),
        )

    @property
    def against(self) -> tuple[str, ...]:
        """What speaks against the rule, each a sentence."""
        named = ", ".join(f"{item.rule} ({item.fault})" for item in self.fires)
        return (f"It also matches examples of other rules: {named}.",) if self.fires else ()

    @property
    def questions(self) -> tuple[str, ...]:
        """What a reviewer should decide: which of two rules a line belongs to."""
        return tuple(
            f"It also matches an example of rule {item.rule}, which names {item.fault}: is this the same failure?"
            for item in self.fires
        )


def examples_of(folder: Path, rules: Sequence[Rule]) -> tuple[Example, ...]:
    """Return the lines of all test logs on which rules fire. `folder`: the rules folder. Unreadable logs are skipped."""
    faults = {rule.id: rule.fault for rule in rules}
    found: dict[Example, None] = {}
    for test in tests_of(folder, rules):
        if test.speaks and test.path.is_file() and test.path.suffix == ".log":
            text = test.path.read_bytes()[:MOST_BYTES].decode("utf-8", "replace")
            found |= dict.fromkeys(Example(test.rule, faults[test.rule], line[:LONGEST]) for line in text.split("\n"))
    return tuple(item for item in found if sum(map(str.isalpha, item.line)) >= _LEAST_LETTERS)


def neighbours_of(messages: Iterable[str], examples: Sequence[Example], speaks: Speaks) -> Neighbours:
    """Return the examples nearest to what an event says, one of each rule, and whether a rule is silent on them."""
    nearest = list(_nearest(list(dict.fromkeys(messages)), examples))
    fires = tuple(item for item in nearest if speaks({"neighbour.log": _data(item)}))
    silent = tuple(item for item in nearest if item not in fires)
    return Neighbours(silent, fires, {f"silent/neighbour-{item.rule}.log": _data(item) for item in silent})


def _nearest(messages: Sequence[str], examples: Sequence[Example]) -> Iterator[Example]:
    """The examples that share the most telling words with a message: those that few examples have."""
    said = [_words(_message(item.line)) for item in examples]
    counts = Counter(word for words in said for word in words)
    own = _words(" ".join(messages[:MOST]))
    scores = {
        index: sum(1.0 / counts[word] for word in shared)
        for index, words in enumerate(said)
        if len(shared := sorted(words & own)) >= LEAST
    }
    seen: set[str] = set()
    for index in sorted(scores, key=lambda at: (-scores[at], examples[at].rule, at)):
        item = examples[index]
        if item.rule not in seen and len(seen) < MOST:
            seen.add(item.rule)
            yield item


def _words(message: str) -> frozenset[str]:
    found = (word.lower() for word in _WORD.findall(message))
    return frozenset(word for word in found if word not in PLAIN)


def _message(line: str) -> str:
    data = line.encode("utf-8", "replace")
    return without_prefix(message_in(data[peel(data).end :].decode("utf-8", "replace").strip()))


def _data(item: Example) -> bytes:
    return f"{item.line}\n".encode("ascii", "replace")
