"""Collects what to search for in a stream: the rulebook's patterns, readers' triggers, progress forms, stage marks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

from kb.parsers.logs.progress.formats import FORMATS
from kb.parsers.logs.progress.line_format import ProgressFormat
from kb.parsers.logs.registry import ALL_READERS
from kb.parsers.logs.stages import STAGES
from kb.rulebase.patterns import literal_regex, scan_form
from kb.rulebase.rule import Pattern, Rule, Rulebook
from kb.scanning.matcher import ScanPattern
from kb.scanning.plan import LinePattern, ScanPlan, Target, active
from kb.scanning.summary import BESIDE


def plan(rulebook: Rulebook) -> ScanPlan:
    """Collect everything that a single pass over a stream must find."""
    rules = lines_plan(rule for rule in rulebook.rules if active(rule))
    engine = {pattern: list(targets) for pattern, targets in zip(rules.patterns, rules.targets, strict=True)}
    for index, reader in enumerate(ALL_READERS):
        form = scan_form(reader.trigger)
        engine.setdefault(ScanPattern(form.expression, reader.ignore_case), []).append(Target("reader", index))
    for index, progress in enumerate(FORMATS):
        form = scan_form(_detector(progress))
        engine.setdefault(ScanPattern(form.expression, once=True), []).append(Target("progress", index))
    for index, (_, regex) in enumerate(STAGES):
        engine.setdefault(ScanPattern(scan_form(regex).expression), []).append(Target("stage", index))
    return _planned(engine, rules.lines)


def _detector(form: ProgressFormat) -> str:
    """Return what shows that a block may have lines of a form: of one read in samples, what its lines begin with is enough."""
    sampled = form.name in BESIDE and form.find.pattern == form.detector.encode()
    return literal_regex(form.head.decode()) if sampled else form.detector


def lines_plan(rules: Iterable[Rule]) -> ScanPlan:
    """Return a plan with only the lines of some rules, regardless of their status."""
    lines = [
        _line_pattern(rule, pattern) for rule in rules for pattern in rule.patterns if pattern.literal or pattern.regex
    ]
    engine: dict[ScanPattern, list[Target]] = {}
    for index, line in enumerate(lines):
        form = scan_form(line.regex)
        engine.setdefault(ScanPattern(form.expression, line.ignore_case), []).append(Target("rule", index))
    return _planned(engine, lines)


def joined(first: ScanPlan, lines: ScanPlan) -> ScanPlan:
    """Append the lines of another plan; the engine patterns follow each other."""
    shift = len(first.lines)
    moved = tuple(tuple(Target(target.kind, target.index + shift) for target in targets) for targets in lines.targets)
    return ScanPlan(
        (*first.patterns, *lines.patterns),
        (*first.targets, *moved),
        (*first.lines, *lines.lines),
        hashlib.sha256(f"{first.digest} {lines.digest}".encode()).hexdigest(),
        first.once | {at + len(first.patterns) for at in lines.once},
    )


def _planned(engine: Mapping[ScanPattern, Sequence[Target]], lines: Sequence[LinePattern]) -> ScanPlan:
    patterns = tuple(engine)
    digest = hashlib.sha256(repr(patterns).encode()).hexdigest()
    once = frozenset(at for at, pattern in enumerate(patterns) if pattern.once)
    return ScanPlan(patterns, tuple(tuple(targets) for targets in engine.values()), tuple(lines), digest, once)


def _line_pattern(rule: Rule, pattern: Pattern) -> LinePattern:
    regex = pattern.regex if pattern.regex is not None else literal_regex(pattern.literal or "")
    form = scan_form(regex)
    return LinePattern(
        key=f"{rule.id}#{pattern.name}",
        regex=regex,
        ignore_case=pattern.ignore_case,
        certain=form.exact and pattern.confirm is None and pattern.not_line is None,
        anchored=form.anchored,
        confirm=pattern.confirm,
        not_line=pattern.not_line,
        sources=pattern.where.sources,
    )
