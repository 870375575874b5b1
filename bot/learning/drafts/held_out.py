"""Learns a rule from all incidents but one, and tries it on that one: whether the rule would have found it before anybody saw it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bot.learning.drafts.rule_folder import rule_text
from bot.learning.drafts.rule_logs import RuleTester
from bot.rulebase.loader import Knowledge
from kb.learning.cases import Candidate, Case, Refusal
from kb.learning.miner import mine
from kb.learning.negative_corpus import Background
from kb.learning.precision import HitRate

MOST = 5  # incidents left out, each of which is mined once more


@dataclass(frozen=True, slots=True)
class HeldOut:
    """How many incidents the rule of the others finds, and the numbers of those that it misses."""

    found: HitRate
    missed: tuple[int, ...] = ()

    @property
    def figures(self) -> tuple[tuple[str, str], ...]:
        """A row for a table; none for a single incident."""
        n = self.found.n
        if not n:
            return ()
        share = f"{self.found.hits} of {n} (95 %: {self.found.low:.0%} to {self.found.high:.0%})"
        return (("Held out: each incident, by the rule learned from the others", share),)

    @property
    def questions(self) -> tuple[str, ...]:
        """What a reviewer should know of a rule that did not find what it had not seen."""
        if not self.missed:
            return ()
        numbers = ", ".join(map(str, self.missed))
        return (
            f"The rule learned from the other incidents does not match incident {numbers}. Does the pattern contain something that these incidents share only by chance?",
        )


def held_out(
    candidate: Candidate, cases: Sequence[Case], background: Background, knowledge: Knowledge, base: Mapping[str, str]
) -> HeldOut:
    """Leave out each incident that a candidate finds, mine the others, and try that rule on the whole stored text of the one.

    `cases`: as the candidate was mined from; `background`: likewise; `base`: the vocabulary files of the rules folder.
    """
    own = [case for case in cases if case.id in candidate.support]
    if len(own) < 2 or not candidate.events:
        return HeldOut(HitRate(0, 0))
    left = own[:MOST]
    missed = tuple(case.id for case in left if not _finds(case, own, background, knowledge, base))
    return HeldOut(HitRate(len(left) - len(missed), len(left)), missed)


def _finds(
    case: Case, own: Sequence[Case], background: Background, knowledge: Knowledge, base: Mapping[str, str]
) -> bool:
    mined = mine([other for other in own if other.id != case.id], background, knowledge.rulebook)
    if isinstance(mined, Refusal):
        return False
    tester = RuleTester(mined, rule_text(mined, knowledge.rulebook), base)
    return tester.speaks({name: text.encode("utf-8", "replace") for name, text in case.texts.items()})
