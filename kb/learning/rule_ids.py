"""Ids, families and titles of learned rules: words of the fault class and of the line, in a fixed alphabet."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kb.learning.tokenizer import PLAIN
from kb.rulebase.rule import Rulebook
from kb.scanning.prefilter import COMMON

LONGEST_ID = 60
LONGEST_TITLE = 80
WORDS = 5  # of an event in an id
_LETTERS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]{2,19}")
_DOMAINS = {
    "hardware": "gpu",
    "network": "network",
    "platform": "host",
    "software": "python",
    "training": "training",
    "none": "host",
}
_SECRET = frozenset(
    {"pass", "password", "passwd", "passphrase", "token", "secret", "key", "keys", "auth", "credential", "credentials"}
)
_SPARE = frozenset(
    {"error", "errors", "failed", "failure", "exception", "runtime", "the", "and", "for", "with", "from"}
)


@dataclass(frozen=True, slots=True)
class RulePlace:
    """Where a rule goes. `taken`: the existing rule with nearly the same name."""

    id: str
    family: str
    title: str
    taken: str = ""


def place_rule(fault: str, words: Sequence[str], rulebook: Rulebook, sentence: str = "") -> RulePlace:
    """A free id, the family that has most rules of the fault, and a title.

    `sentence`: what the event says. Without one, the names come from the class and `words`.
    """
    told = telling([sentence] if sentence else words, rare=not sentence)
    while len(told) > 1 and told[min(len(told), WORDS) - 1] in _SECRET:
        told = told[: min(len(told), WORDS) - 1]  # before a colon they announce a secret, and the title would be masked
    wanted = "-".join(told[:WORDS] if len(told) > 1 and sentence else [*fault.split("_"), *told[:2]])
    wanted = wanted[:LONGEST_ID].strip("-")
    taken = {rule.id for rule in rulebook.rules}
    name, number = wanted, 2
    while name in taken:
        name, number = f"{wanted[: LONGEST_ID - 4]}-{number}", number + 1
    families = Counter(rule.family for rule in rulebook.rules if rule.fault == fault and rule.family)
    known = rulebook.faults[fault]
    family = min(families, key=lambda item: (-families[item], item)) if families else _DOMAINS.get(known.domain, "host")
    head = re.split(r"[:,;]", known.title)[0].strip()
    title = _begun(sentence) if sentence else f"{head}: {' '.join(told[:4])}" if told else head
    return RulePlace(name, family, title[:LONGEST_TITLE].rstrip(" :"), wanted if wanted in taken else "")


def _begun(sentence: str) -> str:
    """A sentence with a capital first, unless it begins with the name of a program or a variable."""
    first = re.match(r"[a-z]+(?:-[a-z]+)*(?= |$)", sentence)
    return f"{sentence[0].upper()}{sentence[1:]}" if first is not None else sentence


def telling(words: Sequence[str], *, rare: bool = True) -> list[str]:
    """Words for a name, in their order: plain letters in lower case, rare words preferred by default."""
    found = list(dict.fromkeys(part.lower() for word in words for part in _LETTERS.findall(word)))
    long = [word for word in found if len(word) > 2 and word not in _SPARE and word not in PLAIN]
    return ([word for word in long if word not in COMMON] if rare else []) or long
