"""Estimates each rule's cost in a scan, in a machine-independent unit, and finds rules that cost too much."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kb.errors import Fault
from kb.rulebase.recurring_lines import RECURRING
from kb.rulebase.rule import Rule, Rulebook
from kb.rulebase.rulebook import Positions
from kb.scanning.first_stage import words_of
from kb.scanning.plan import active
from kb.scanning.plan_builder import lines_plan

MOST = 60  # the 99th percentile of the rules of 2026-11-23
WORDLESS = 20  # cost of a pattern that is searched for directly, because no rare word finds its lines
RECURS = 100  # cost of matching a line that runs print at every step
REASON = "Scan cost:"  # prefix of the `known_problems` entry that justifies a higher cost


def cost(rule: Rule) -> int:
    """Return a rule's cost: 1 for each word that the scan searches for, and more for patterns that no word finds."""
    words: set[bytes] = set()
    total = 0
    for pattern in lines_plan([rule]).patterns:
        found = words_of(pattern)
        if found is not None:
            words |= found
            continue
        search = re.compile(pattern.expression.encode(), re.IGNORECASE if pattern.ignore_case else 0).search
        total += WORDLESS + RECURS * sum(search(line) is not None for line in RECURRING.encode().split(b"\n"))
    return total + len(words)


def costly(rulebook: Rulebook, positions: Positions | None = None) -> Iterator[Fault]:
    """Yield a fault for each rule that costs more than MOST without giving a reason."""
    places = positions or Positions()
    for rule in rulebook.rules:
        if active(rule) and not any(text.startswith(REASON) for text in rule.known_problems):
            found = cost(rule)
            if found > MOST:
                yield places.fault(
                    rule,
                    "match",
                    f"the scan of every log costs {found} units for this rule, more than {MOST}",
                    f"use rarer and fewer words, or say why not in known_problems: {REASON} …",
                )
