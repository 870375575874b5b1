"""The cost of changed rules on logs of successful runs, compared with other rules: the number of lines the engine reports for them.

Seconds vary between runs; the number of lines does not. Each line takes microseconds to check, which a successful run wastes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from math import ceil

from bot.authoring.stats import pointed
from bot.learning.replay.trial import Trial
from bot.rulebase.loader import engine
from kb.rulebase.rule import Rule
from kb.scanning.matcher import Matcher
from kb.scanning.plan import ScanPlan
from kb.scanning.plan_builder import lines_plan

SHARE = 0.95
LEAST_RULES, LEAST_BYTES = 20, 100_000  # minimum number of rules for a comparison
LEAST = 10.0  # a rule with fewer lines per MB is never expensive


def dearer(trial: Trial, clean: Mapping[str, Mapping[str, bytes]]) -> Iterator[str]:
    """Return a sentence for each changed rule that checks more lines of successful runs than before and than 95 % of the base's rules."""
    texts = [text for streams in clean.values() for text in streams.values()]
    size = sum(map(len, texts))
    plan = trial.known.plan
    ruled = {_rule(line.key) for line in plan.lines}
    if size < LEAST_BYTES or len(ruled) < LEAST_RULES:
        return
    base = _asked(plan, trial.known.matcher(), texts)
    bar = max(sorted(base[name] for name in ruled)[ceil(SHARE * len(ruled)) - 1] / size * 1e6, LEAST)
    for name, count in sorted(_of(trial.new.rules, trial.rules, texts).items()):
        asked = count / size * 1e6
        if asked > bar and count > base[name]:
            yield f"{name} checks {asked:.1f} lines per MB of clean logs; 95 % of the rules check at most {bar:.1f}"


def _of(rules: Iterable[Rule], touched: Collection[str], texts: Iterable[bytes]) -> Counter[str]:
    plan = lines_plan(rule for rule in rules if rule.id in touched)
    return _asked(plan, engine()(plan.patterns), texts) if plan.patterns else Counter()


def _asked(plan: ScanPlan, matcher: Matcher, texts: Iterable[bytes]) -> Counter[str]:
    """Return rule → number of lines to check."""
    found: Counter[str] = Counter()
    for text in texts:
        found.update(pointed(plan, matcher, text))
    return found


def _rule(key: str) -> str:
    return key.partition("#")[0]
