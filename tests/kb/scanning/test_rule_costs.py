"""What a rule costs the scan, and which rules are sent back for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kb.rulebase.rule import Pattern
from kb.scanning.rule_costs import MOST, RECURS, WORDLESS, cost, costly
from tests.support.kb_samples import rule, rulebook

MANY = "|".join(f"{letter * 8}-valve" for letter in "abcdefghijklmnopqrstuvwxyz")


@pytest.mark.parametrize(
    ("regexes", "units"),
    [
        (["Connection closed by peer"], 1),
        (["Connection closed by peer", "Connection closed by peer(?: at once)?"], 1),
        (["segmentation fault|core dumped"], 2),
        (["ab[45]cd"], WORDLESS),
        (["elapsed time per iteration"], WORDLESS + RECURS),
    ],
)
def test_a_rule_costs_its_words_and_more_where_none_finds_it(regexes: list[str], units: int) -> None:
    """Words that its patterns share cost once; what is on lines of every step costs most."""
    patterns = [Pattern(f"p{number}", regex=regex) for number, regex in enumerate(regexes)]
    assert cost(rule("valve", "network_lost", *patterns)) == units


def test_a_costly_rule_needs_a_reason() -> None:
    """One is reported with its cost, unless known_problems says why; drafts are not scanned for."""
    cheap = rule("valve", "network_lost", Pattern("p", regex="Connection closed by peer"))
    dear = rule(
        "valves", "network_lost", *(Pattern(f"p{n}", regex=MANY.replace("valve", f"valve{n}")) for n in range(3))
    )
    (fault,) = costly(rulebook(cheap, dear))
    assert f"costs {cost(dear)} units" in fault.message
    assert cost(dear) > MOST
    assert not list(costly(rulebook(replace(dear, known_problems=("Scan cost: each valve has a name of its own.",)))))
    assert not list(costly(rulebook(replace(dear, status="draft"))))
