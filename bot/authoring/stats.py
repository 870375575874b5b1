"""Statistics of the rule base: rules by kind, and the cost of each in a scan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bot.authoring.docs import faults_of
from bot.rulebase.loader import Knowledge
from connectors.bundles.streams import StreamReader, discover
from kb.model import StreamRef
from kb.rulebase.rule import Rule, Rulebook
from kb.scanning.matcher import Matcher
from kb.scanning.plan import ScanPlan
from kb.scanning.scanner import scan


@dataclass(frozen=True, slots=True)
class RuleCost:
    """The cost of a rule in a scan: lines that the engine reports for it, and how many of them it confirms."""

    rule: str
    asked: int
    meant: int


def costs(knowledge: Knowledge, paths: Sequence[Path]) -> tuple[list[RuleCost], int]:
    """Return the cost of each rule on some logs, highest first, and the bytes read. Each line to confirm costs microseconds."""
    asked: Counter[str] = Counter()
    meant: Counter[str] = Counter()
    size = 0
    matcher = knowledge.matcher()
    for ref in discover(paths).streams:
        summary = scan(knowledge.plan, matcher, ref, _read(ref, asked, knowledge, matcher))
        size += summary.size
        for key, hits in summary.hits.items():
            meant[key.partition("#")[0]] += hits.count
    found = [RuleCost(rule.id, asked[rule.id], meant[rule.id]) for rule in knowledge.rulebook.rules]
    return sorted(found, key=lambda rule_cost: (-rule_cost.asked, rule_cost.rule)), size


def _read(ref: StreamRef, asked: Counter[str], knowledge: Knowledge, matcher: Matcher) -> Iterator[bytes]:
    """Yield a stream's blocks for the scanner, and count their bytes."""
    for block in StreamReader(ref):
        asked.update(pointed(knowledge.plan, matcher, block))
        yield block


def pointed(plan: ScanPlan, matcher: Matcher, block: bytes) -> Iterator[str]:
    """Yield the rules that the engine reports for lines of a block, once for each line."""
    lines = {(pattern, block.rfind(b"\n", 0, at)) for pattern, at in matcher.hits(block.replace(b"\r", b"\n"))}
    for pattern, _ in lines:
        for target in plan.targets[pattern]:
            if target.kind == "rule":
                yield plan.lines[target.index].key.partition("#")[0]


def render_costs(found: Sequence[RuleCost], size: int, most: int = 20) -> str:
    """Render the most expensive rules as text."""
    total = sum(rule_cost.asked for rule_cost in found)
    lines = [f"{size / 1e6:,.1f} MB read; {total:,} lines asked, {total / max(1, size) * 1e6:,.1f} a MB", ""]
    lines.append(f"{'asked':>10}{'meant':>10}  rule")
    lines += [
        f"{rule_cost.asked:10,d}{rule_cost.meant:10,d}  {rule_cost.rule}"
        for rule_cost in found[:most]
        if rule_cost.asked
    ]
    return "\n".join(lines)


def render(rulebook: Rulebook, tests: Mapping[str, Sequence[str]]) -> str:
    """Render the statistics as text. `tests`: rule id → the names of its tests (`bot.authoring.selftest.names_of`)."""
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
        *(f"  {named[fault]:4d}  {fault}" for fault in sorted(rulebook.faults, key=lambda item: (-named[item], item))),
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
