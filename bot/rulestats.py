"""The rule base in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from bot.ruledocs import faults_of
from kb.rule import Rule, Rulebook


def render(rulebook: Rulebook, tests: Mapping[str, Sequence[str]]) -> str:
    """The numbers as text for people. `tests`: rule id → the names of its tests (`bot.ruletests.names_of`)."""
    rules = rulebook.rules
    each = [len(tests.get(rule.id, ())) for rule in rules] or [0]
    patterns = sum(len(rule.patterns) for rule in rules)
    fallbacks, tables = sum(rule.fallback for rule in rules), sum(rule.table is not None for rule in rules)
    named = Counter(fault for rule in rules if rule.status != "deprecated" for fault in faults_of(rule))
    without = [fault for fault in rulebook.faults if not named[fault]]
    fewest = min(each)
    least = [rule.id for rule, count in zip(rules, each, strict=False) if count == fewest]
    lines = [
        f"{len(rules)} rules, {patterns} patterns, {fallbacks} fallbacks, {tables} tables, {sum(each)} tests",
        f"tests a rule: at least {fewest} ({_few(least)}), median {median(each):g}",
        *_counted("by family", rules, [rule.family for rule in rules]),
        *_counted("by status", rules, [rule.status for rule in rules]),
        *_counted("by role", rules, [rule.role for rule in rules]),
        "",
        "by fault class, rows of tables too:",
        *(f"  {named[fault]:4d}  {fault}" for fault in sorted(rulebook.faults, key=lambda one: (-named[one], one))),
        "",
        f"fault classes without a rule: {', '.join(without) or 'none'}",
    ]
    return "\n".join(lines)


def _counted(title: str, rules: Sequence[Rule], words: Iterable[str]) -> list[str]:
    found = sorted(Counter(words).items(), key=lambda item: (-item[1], item[0]))
    return ["", f"{title}:", *(f"  {count:4d}  {word}" for word, count in found)] if rules else []


def _few(names: Sequence[str]) -> str:
    rest = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3]) or 'no rule'}{rest}"
