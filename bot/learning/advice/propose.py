"""Turn advice that has files into a proposal, like that for a learned rule."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import msgspec

from bot.learning.advice.advise import RuleAdvice
from bot.learning.advice.test_logs import SingleRuleScan
from bot.learning.drafts.service import lines_of, silent_lines
from bot.learning.proposals.pull_request import replayed
from bot.learning.proposals.store import Proposal, ProposedRule
from bot.learning.replay.backtest import Backtest
from bot.learning.replay.trial import RuleFiles, Trial
from kb.rulebase.codec import meaning
from kb.rulebase.rule import Rule


def proposed_of(advice: RuleAdvice, tried: Trial, told: Backtest, *, tenant: str, who: str) -> ProposedRule:
    """Return the proposal. Its key is a digest of the kind of change and of the rule's new meaning.

    `tried`, `told`: the tested change, and the result of the test.
    """
    rule = _rule(tried, advice.rule)
    files = {path: text.encode() for path, text in advice.files.items()}
    figures, hurts, passed = replayed(told)
    return ProposedRule(
        key=_key(advice, rule),
        tenant=tenant,
        rule=rule.id,
        title=advice.title,
        fault=rule.fault,
        who=who,
        files=files,
        incidents=advice.incidents,
        why=advice.reasons[0],
        patterns=advice.patterns,
        lines=tuple(lines_of(files, "/match/")),
        silent=silent_lines(files),
        figures=figures,
        notes=(*advice.reasons[1:], *(f"The backtest advises against it: {harm}" for harm in hurts)),
        passed=passed,
    )


def against(advice: RuleAdvice, base: RuleFiles, folder: Path, told: Backtest) -> Iterator[str]:
    """Return the reasons against proposing a piece of advice, as sentences. `folder`: the rules folder, with the tests.

    Raises:
        RuleError: the changed rule has errors.
    """
    yield from told.hurts
    rule = next((item for item in base.known.rulebook.rules if item.id == advice.rule), None)
    if rule is not None and advice.kind != "retire":  # a retired rule fires on nothing and is no longer tested
        was, will = (
            set(SingleRuleScan(base, rule, text).failed(folder))
            for text in (base.files[rule.file], advice.files[rule.file])
        )
        if failed := sorted(will - was):
            yield f"the rule would fail its own tests: {', '.join(failed[:5])}"


def in_the_way(proposed: ProposedRule, live: tuple[Proposal, ...]) -> Proposal | None:
    """Return an undecided proposal that changes the same rule. A rule has one pending change at a time."""
    kind = f"{proposed.key.partition(':')[0]}:"
    return next(
        (
            proposal
            for proposal in live
            if proposal.rule == proposed.rule and not any(key.startswith(kind) for key in proposal.content.keys)
        ),
        None,
    )


def _rule(tried: Trial, name: str) -> Rule:
    return next(rule for rule in tried.new.rules if rule.id == name)


def _key(advice: RuleAdvice, rule: Rule) -> str:
    meant = msgspec.json.encode([advice.kind, rule.id, meaning(rule)])
    return f"{advice.kind}:{sha256(meant).hexdigest()[:32]}"
