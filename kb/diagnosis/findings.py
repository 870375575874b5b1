"""From rules to findings: which rules hold on the facts, split by table row, and which stay silent because of others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kb.diagnosis.conditions import Evaluator, by_time
from kb.facts.history import History
from kb.facts.job_facts import Facts
from kb.facts.pattern_lookup import PatternLookup
from kb.facts.pattern_tests import fits
from kb.facts.signals import Signal
from kb.facts.stream_facts import structure_start
from kb.facts.topology import names_a_node
from kb.model import Gap, Role
from kb.report import NotEvaluated
from kb.rulebase.rule import FaultClass, RemediationStep, Rule, Rulebook, SiteException, TableRow
from kb.rulebase.texts import fill, fill_command
from kb.scanning.plan import active


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that holds: its fault and role (a table row may change both) and the signals behind it, in order of time."""

    rule: Rule
    fault: FaultClass
    role: Role
    signals: tuple[Signal, ...]
    row: TableRow | None = None
    captures: Mapping[str, str] = field(default_factory=dict)
    count: int = 0
    ranks: frozenset[int] = frozenset()

    @property
    def first(self) -> Signal:
        """The earliest signal."""
        return self.signals[0]

    @property
    def is_symptom(self) -> bool:
        """Whether it only reports that something else failed first."""
        return self.role == "symptom" or self.fault.symptom

    def fill(self, text: str) -> str:
        """Fill the holes of a text: `{name}` or `{name|default}`. A clause `[? on {name}]` goes where its name is unknown."""
        return fill(text, self.captures)

    def steps(self) -> tuple[RemediationStep, ...]:
        """Return the steps of the remedy that apply, with their texts filled in."""
        steps = self.row.remediation if self.row and self.row.remediation else self.rule.remediation
        return tuple(
            replace(
                item,
                text=self.fill(item.text),
                command=fill_command(item.command, self.captures) if item.command else None,
                verify=self.fill(item.verify) if item.verify else None,
                escalate=self.fill(item.escalate) if item.escalate else None,
            )
            for item in steps
            if all(fits(regex, self.captures.get(name, "")) for name, regex in item.only.items())
        )


@dataclass(frozen=True, slots=True)
class RuleResults:
    """The results of all rules: findings, rules that could not be evaluated, and signals that a site excepted."""

    findings: tuple[Finding, ...] = ()
    not_evaluated: tuple[NotEvaluated, ...] = ()
    excepted: tuple[Gap, ...] = ()


def find(rulebook: Rulebook, facts: Facts, history: History) -> RuleResults:
    """Evaluate every active rule."""
    heard = evaluate_rules(
        rulebook, (rule for rule in rulebook.rules if active(rule) and rule.status != "shadow"), facts, history
    )
    return replace(heard, findings=combine_findings(heard.findings, facts))


def evaluate_rules(rulebook: Rulebook, rules: Iterable[Rule], facts: Facts, history: History) -> RuleResults:
    """Evaluate rules independently of each other. `combine_findings` then weighs the findings together."""
    found: list[Finding] = []
    open_: list[NotEvaluated] = []
    excepted: list[Gap] = []
    framework = facts.evidence.job.framework
    lookup = PatternLookup(facts)
    for rule in rules:
        if not _applies(rule, framework):
            continue
        evaluator = Evaluator(rule, lookup, history)
        answer = evaluator.judge()
        if answer.truth is None:
            open_.append(NotEvaluated(rule.id, answer.needs))
        elif answer.truth and answer.signals:
            signals, gaps = _unexcepted(rule, answer.signals, evaluator, facts)
            excepted += gaps
            split = _split(rulebook, rule, signals)
            if len(split) == 1 and len(signals) == len(answer.signals):
                count, ranks = evaluator.tally(split[0].signals)
                split = [replace(split[0], count=count, ranks=split[0].ranks | ranks)]
            found.extend(split)
    return RuleResults(tuple(found), tuple(open_), tuple(excepted))


def combine_findings(heard: Iterable[Finding], facts: Facts) -> tuple[Finding, ...]:
    """Return the findings that remain, in order of their rules.

    Drops what the run survived, and generic matches that another rule explains.
    """
    return tuple(_without_fallbacks([living for finding in heard if (living := _living(finding)) is not None], facts))


def _applies(rule: Rule, framework: str | None) -> bool:
    """Whether a rule applies to the framework of this job. Any rule does where the framework is unknown."""
    wanted = rule.applies_to.get("framework")
    return wanted is None or framework is None or wanted.lower() in framework.lower()


def _unexcepted(
    rule: Rule, signals: tuple[Signal, ...], evaluator: Evaluator, facts: Facts
) -> tuple[tuple[Signal, ...], list[Gap]]:
    """Return the signals that no exception of the site covers, and gaps for those that one does."""
    gaps = []
    for exception in rule.site:
        kept = _less(exception, signals, evaluator, facts)
        if len(kept) < len(signals):
            gone = len(signals) - len(kept)
            gaps.append(
                Gap(
                    "rule_excepted",
                    rule.id,
                    f"excepted by the site until {exception.expires}: {exception.reason}",
                    got=f"{gone} of {len(signals)} signals skipped",
                    rules_out=rule.title,
                )
            )
        signals = kept
    return signals, gaps


def _less(
    exception: SiteException, signals: tuple[Signal, ...], evaluator: Evaluator, facts: Facts
) -> tuple[Signal, ...]:
    job = facts.evidence.job
    if exception.jobs is not None and not any(fits(exception.jobs, name) for name in (job.name, job.id) if name):
        return signals
    if exception.condition is not None and evaluator.condition(exception.condition).truth is not True:
        return signals
    return tuple(
        signal
        for signal in signals
        if (exception.lines is not None and not fits(exception.lines, signal.line, whole=False))
        or (exception.nodes is not None and not fits(exception.nodes, signal.resource.node or ""))
    )


def _split(rulebook: Rulebook, rule: Rule, signals: Sequence[Signal]) -> list[Finding]:
    ordered = by_time({(s.stream, s.offset, s.key): s for s in signals}.values())
    if not ordered:
        return []
    if rule.table is None:
        return [_finding(rulebook, rule, None, ordered)]
    rows: dict[str, list[Signal]] = {}
    for signal in _each_by_one_pattern(rule, ordered) if rule.table.key == "pattern" else ordered:
        key = pattern_of(signal) if rule.table.key == "pattern" else signal.captures.get(rule.table.key)
        if key is not None:
            rows.setdefault(key, []).append(signal)
    found = []
    for key, group in rows.items():
        row = rule.table.rows.get(key, rule.table.default)
        if row is not None and not row.ignore:
            found.append(_finding(rulebook, rule, replace(row, key=key), group))
    return found


def _each_by_one_pattern(rule: Rule, signals: Sequence[Signal]) -> Iterator[Signal]:
    """Yield each line once, as found by the first of the rule's patterns that matches it."""
    order = {pattern.name: place for place, pattern in enumerate(rule.patterns)}
    best: dict[tuple[int, int], Signal] = {}
    for signal in signals:
        place = (signal.stream, signal.offset)
        known = best.setdefault(place, signal)
        first, other = (known, signal) if order[pattern_of(known)] <= order[pattern_of(signal)] else (signal, known)
        best[place] = replace(first, captures={**other.captures, **first.captures})
    return iter(best.values())


def _finding(rulebook: Rulebook, rule: Rule, row: TableRow | None, signals: Sequence[Signal]) -> Finding:
    fault = rulebook.faults[(row.fault if row and row.fault else rule.fault)]
    role = row.role if row and row.role else rule.role
    return Finding(rule, fault, role, tuple(signals), row, _words(row, signals), len(signals), _ranks(signals))


def _words(row: TableRow | None, signals: Sequence[Signal]) -> dict[str, str]:
    """Return what a rule's texts can name: captures, the earliest signal's first, and the place of that signal."""
    first = signals[0]
    captures: dict[str, str] = {}
    for signal in reversed(signals):
        captures.update(signal.captures)
    for name, value in (
        ("rank", first.resource.rank),
        ("node", first.resource.node if names_a_node(first.resource.node or "") else None),
        ("iteration", first.iteration),
        ("stage", first.stage),
        ("gpu", first.captures.get("pci") or first.resource.gpu),
        ("pattern", pattern_of(first)),
    ):
        if value is not None:
            captures.setdefault(name, str(value))
    if row is not None:
        captures["key"] = row.key
        captures["title"] = row.title
    return captures


def pattern_of(signal: Signal) -> str:
    """Return the name of the pattern that found a signal."""
    return signal.key.rpartition("#")[2]


def _ranks(signals: Sequence[Signal]) -> frozenset[int]:
    return frozenset(signal.resource.rank for signal in signals if signal.resource.rank is not None)


def _only(finding: Finding, signals: tuple[Signal, ...]) -> Finding | None:
    """Return the finding with some of its signals; its texts and counts cover only those. None where none is left."""
    if len(signals) == len(finding.signals):
        return finding
    if not signals:
        return None
    words = _words(finding.row, signals)
    return replace(finding, signals=signals, captures=words, count=len(signals), ranks=_ranks(signals))


def _living(finding: Finding) -> Finding | None:
    """Drop the signals after which the run went on, unless the fault is one that a run survives."""
    if finding.fault.outlives:
        return finding
    return _only(finding, tuple(signal for signal in finding.signals if not signal.survived))


def _without_fallbacks(found: list[Finding], facts: Facts) -> list[Finding]:
    """Drop from generic rules every signal, and every chain of exceptions, that another rule explains."""
    others = [finding for finding in found if not finding.rule.fallback and finding.role != "context"]
    covered: dict[int, list[tuple[int, int]]] = {}
    for other in others:
        for signal in other.signals:
            low, high = chain_span(signal, facts) if not other.is_symptom else signal.span
            covered.setdefault(signal.stream, []).append((low, high))
    kept = []
    for finding in found:
        if not finding.rule.fallback:
            kept.append(finding)
            continue
        free = tuple(
            s
            for s in finding.signals
            if not any(low <= s.offset < high or low <= s.span[0] < high for low, high in covered.get(s.stream, ()))
        )
        left = _only(finding, free)
        if left is not None:
            kept.append(left)
    return kept


def chain_span(signal: Signal, facts: Facts) -> tuple[int, int]:
    """Return the byte range of the whole chain of exceptions that a signal is part of, or of the signal."""
    low, high = signal.span
    for exception in facts.streams[signal.stream].exceptions:
        start = structure_start(exception)
        linked = int(exception.fields.get("chain") or 0) > 0 or bool(exception.fields.get("chained"))
        if start <= signal.offset < exception.end or (linked and start - 400 <= high and exception.end + 400 >= low):
            low, high = min(low, start), max(high, exception.end)
    return low, high
