"""Turns rules into findings: which rules hold on the facts, split by table row, and which are suppressed by others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace

from kb.diagnosis.conditions import Evaluator, by_time
from kb.facts.history import History
from kb.facts.job_facts import Facts
from kb.facts.log.chained_exceptions import structure_start
from kb.facts.patterns.lookup import PatternLookup
from kb.facts.patterns.signals import Signal
from kb.facts.patterns.structure_tests import fits
from kb.facts.topology import names_a_node
from kb.model import Gap, Role
from kb.regex.lazy import lazy_compile
from kb.report import NotEvaluated
from kb.rulebase.rule import FaultClass, RemediationStep, Rule, Rulebook, SiteException, Table, TableRow
from kb.rulebase.texts import fill, fill_command
from kb.scanning.plan import active
from kb.values import dataclass

PREEMPTED = "preempted"  # id of the fault class for a run that the platform stops
NOTICE = 180.0  # seconds that a platform gives a process before it takes the machine back; two minutes are usual
_CURED_BY_REPEAT = frozenset({"requeue", "wait", "none"})  # advice for what does not end the next attempt, too
_NAMING = ("pci", "host")  # captures that name one of several devices or machines
_ON_A_NODE = lazy_compile(r" on \{node(?:\|the node)?\}")
_PYTHON_WARNING = lazy_compile(r"\.py:\d{1,6}: (?:[A-Za-z_]\w{0,60}\.){0,8}[A-Za-z]\w{0,60}Warning: ")


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that holds, with its fault and role (a table row may change both) and its signals in order of time."""

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
    def title(self) -> str:
        """The title of the table row, or of the rule if it has no table."""
        return self.fill(self.row.title if self.row else self.rule.title)

    @property
    def is_symptom(self) -> bool:
        """Whether the finding only reports that something else failed first."""
        return self.role == "symptom" or self.fault.symptom

    @property
    def only_warned(self) -> bool:
        """Whether it consists of Python warnings only (`file.py:12: UserWarning: …`), which end no process."""
        return all(_PYTHON_WARNING.search(signal.line) is not None for signal in self.signals)

    def fill(self, text: str) -> str:
        """Fill the placeholders of a sentence and drop the clauses that do not apply (kb.rulebase.texts)."""
        return fill(text, self.captures).strip()

    @property
    def summary(self) -> str:
        """What was found, in a sentence: of several GPUs or hosts not one alone, of an unknown node nothing."""
        text = self.row.summary if self.row and self.row.summary else self.rule.summary
        text = text if self.captures.get("node") else _ON_A_NODE.sub("", text)
        captures = dict(self.captures)
        for name in _NAMING:
            others = {signal.captures.get(name) for signal in self.signals} - {None, "", self.captures.get(name)}
            if others and captures.get(name):
                captures[name] = f"{captures[name]} and {len(others)} more"
                captures.pop("id", None)  # of the first alone
        return fill(text, captures).strip()

    @property
    def cause(self) -> str:
        """What causes such a fault, in the row's words if it has any."""
        return self.fill((self.row and self.row.cause) or self.rule.cause)

    @property
    def impact(self) -> str:
        """How such a fault affects this run, in the row's words if it has any."""
        return self.fill((self.row and self.row.impact) or self.rule.impact)

    def steps(self) -> tuple[RemediationStep, ...]:
        """Return the steps of the remedy that apply, with their texts filled in; none whose text does not apply."""
        steps = self.row.remediation if self.row and self.row.remediation else self.rule.remediation
        found = (
            replace(
                item,
                text=self.fill(item.text),
                command=(fill_command(item.command, self.captures).strip() or None) if item.command else None,
                verify=(self.fill(item.verify) or None) if item.verify else None,
                escalate=self.fill(item.escalate) if item.escalate else None,
            )
            for item in steps
            if all(fits(regex, self.captures.get(name, "")) for name, regex in item.only.items())
        )
        return tuple(item for item in found if item.text)


@dataclass(frozen=True, slots=True)
class RuleResults:
    """The results of all rules: findings, rules that could not be evaluated, and signals that a site excepted.

    `silenced`: the findings that the excepted signals would have made. Generic rules must not report their lines either.
    """

    findings: tuple[Finding, ...] = ()
    not_evaluated: tuple[NotEvaluated, ...] = ()
    excepted: tuple[Gap, ...] = ()
    silenced: tuple[Finding, ...] = ()


def find(rulebook: Rulebook, facts: Facts, history: History) -> RuleResults:
    """Evaluate every active rule."""
    heard = evaluate_rules(
        rulebook, (rule for rule in rulebook.rules if active(rule) and rule.status != "shadow"), facts, history
    )
    return replace(heard, findings=combine_findings(heard.findings, facts, heard.silenced))


def evaluate_rules(rulebook: Rulebook, rules: Iterable[Rule], facts: Facts, history: History) -> RuleResults:
    """Evaluate rules independently of each other. `combine_findings` then weighs the findings together."""
    found: list[Finding] = []
    open_: list[NotEvaluated] = []
    excepted: list[Gap] = []
    silenced: list[Finding] = []
    framework = facts.evidence.job.framework
    lookup = PatternLookup(facts)
    plain, judging = _in_order(rules)
    for rule in (*plain, *judging):
        if not _applies(rule, framework):
            continue
        if judging and rule is judging[0]:
            lookup.explained_by(_covered((*combine_findings(found, facts), *silenced), facts))
        if lookup.is_silent(rule):
            continue
        evaluator = Evaluator(rule, lookup, history)
        answer = evaluator.judge()
        if answer.truth is None:
            open_.append(NotEvaluated(rule.id, answer.needs))
        elif answer.truth and answer.signals:
            signals, gaps = _unexcepted(rule, answer.signals, evaluator, facts)
            excepted += gaps
            if gaps:
                silenced += _split(rulebook, rule, [s for s in answer.signals if s not in signals])
            split = _split(rulebook, rule, signals)
            if len(split) == 1 and len(signals) == len(answer.signals):
                count, ranks = evaluator.tally(split[0].signals)
                split = [replace(split[0], count=count, ranks=split[0].ranks | ranks)]
            found.extend(split)
    return RuleResults(tuple(found), tuple(open_), tuple(excepted), tuple(silenced))


def combine_findings(heard: Iterable[Finding], facts: Facts, silenced: Sequence[Finding] = ()) -> tuple[Finding, ...]:
    """Return the findings that remain, in order of their rules.

    Drops findings that the run survived and generic matches that another rule explains. `silenced`: what a site excepts.
    """
    every = tuple(heard)
    living = [finding for item in every if (finding := _living(item)) is not None]
    if living and all(finding.is_symptom for finding in living):
        living += _causes_before(every, living, facts)
    return tuple(_without_fallbacks(living, silenced, facts))


def _in_order(rules: Iterable[Rule]) -> tuple[list[Rule], list[Rule]]:
    """Return the plain rules, and those that classify what the plain ones leave unexplained."""
    plain: list[Rule] = []
    judging: list[Rule] = []
    for rule in rules:
        classifies = any(item.exception is not None and item.exception.classified for item in rule.patterns)
        (judging if classifies else plain).append(rule)
    return plain, judging


def _applies(rule: Rule, framework: str | None) -> bool:
    """Whether a rule applies to this job's framework. If the framework is unknown, every rule applies."""
    wanted = rule.applies_to.get("framework")
    return wanted is None or framework is None or wanted.lower() in framework.lower()


def _unexcepted(
    rule: Rule, signals: tuple[Signal, ...], evaluator: Evaluator, facts: Facts
) -> tuple[tuple[Signal, ...], list[Gap]]:
    """Return the signals that no site exception covers, and gaps for the others."""
    gaps = []
    for exception in rule.site:
        kept = _less(exception, signals, evaluator, facts)
        if len(kept) < len(signals):
            gone = len(signals) - len(kept)
            gaps.append(
                Gap(
                    "rule_excepted",
                    rule.id,
                    f"{gone} of {len(signals)} signals excepted by the site until {exception.expires}: {exception.reason}",
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
    if rule.table.key == "pattern":
        rows = _one_default(rule.table, rows)
    found = []
    for key, group in rows.items():
        row = rule.table.rows.get(key, rule.table.default)
        if row is not None and not row.ignore:
            found.append(_finding(rulebook, rule, replace(row, key=key), group))
    return found


def _one_default(table: Table, rows: Mapping[str, list[Signal]]) -> dict[str, list[Signal]]:
    """Join the signals of all patterns without a row of their own: the default row describes them together."""
    joined: dict[str, list[Signal]] = {}
    default = next((key for key in rows if key not in table.rows), "")
    for key, group in rows.items():
        joined.setdefault(key if key in table.rows else default, []).extend(group)
    return {key: list(by_time(group)) for key, group in joined.items()}


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
    """Return the values for a rule's texts: captures, preferring the earliest signal's, and the place of that signal."""
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


def reduced(finding: Finding, signals: tuple[Signal, ...]) -> Finding | None:
    """Return the finding reduced to some of its signals, which its texts and counts then cover; None if none is left."""
    if len(signals) == len(finding.signals):
        return finding
    if not signals:
        return None
    words = _words(finding.row, signals)
    return replace(finding, signals=signals, captures=words, count=len(signals), ranks=_ranks(signals))


def _living(finding: Finding) -> Finding | None:
    """Drop signals after which the run continued, unless a run can survive the fault."""
    if finding.fault.outlives:
        return finding
    return reduced(finding, tuple(signal for signal in finding.signals if not signal.survived))


def _causes_before(every: Sequence[Finding], symptoms: Sequence[Finding], facts: Facts) -> list[Finding]:
    """Return the causes that further steps seem to rule out, for a run that ended with mere symptoms of such a cause.

    An attempt that makes hardly a step most probably ended as the one before it, unless a repeat cures that cause. And a
    process works on after the notice that its machine is taken back, until it is killed.
    """
    times = [signal.time for finding in symptoms for signal in finding.signals if signal.time is not None]
    found = []
    for finding in every:
        if finding.is_symptom or not any(symptom.fault.id in finding.fault.explains for symptom in symptoms):
            continue
        if finding.fault.id == PREEMPTED:
            found.append(
                _revived(finding, [s for s in finding.signals if s.survived and _gives_notice(s, times, facts)])
            )
        elif finding.fault.advice not in _CURED_BY_REPEAT:
            found.append(_revived(finding, [s for s in finding.signals if s.survived and _left_behind(s, facts)]))
    return [finding for finding in found if finding is not None]


def _gives_notice(signal: Signal, ends: Sequence[float], facts: Facts) -> bool:
    """Whether an end, or the end of the log where a notice stands, came soon after it."""
    last = facts.streams[signal.stream].summary.last_time
    every = ends if last is None else (*ends, last)
    return signal.time is not None and any(0 <= end - signal.time <= NOTICE for end in every)


def _left_behind(signal: Signal, facts: Facts) -> bool:
    return facts.streams[signal.stream].left_behind(signal.offset)


def _revived(finding: Finding, signals: Sequence[Signal]) -> Finding | None:
    found = reduced(finding, tuple(signals))
    return None if found is None else replace(found, signals=tuple(replace(s, survived=False) for s in signals))


def _without_fallbacks(found: list[Finding], silenced: Sequence[Finding], facts: Facts) -> list[Finding]:
    """Drop from generic rules every signal, and every chain of exceptions, that another rule explains or would."""
    covered = _covered([*(finding for finding in found if not finding.rule.fallback), *silenced], facts)
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
        left = reduced(finding, free)
        if left is not None:
            kept.append(left)
    return kept


def _covered(found: Iterable[Finding], facts: Facts) -> dict[int, list[tuple[int, int]]]:
    """Return the byte ranges that findings explain, by stream: of a cause, its whole chain of exceptions."""
    covered: dict[int, list[tuple[int, int]]] = {}
    for other in found:
        if other.role == "context":
            continue
        for signal in other.signals:
            low, high = chain_span(signal, facts) if not other.is_symptom else signal.span
            covered.setdefault(signal.stream, []).append((low, high))
    return covered


def chain_span(signal: Signal, facts: Facts) -> tuple[int, int]:
    """Return the byte range of the whole chain of exceptions that a signal is part of, or of the signal."""
    low, high = signal.span
    for exception in facts.streams[signal.stream].exceptions:
        start = structure_start(exception)
        linked = int(exception.fields.get("chain") or 0) > 0 or bool(exception.fields.get("chained"))
        if start <= signal.offset < exception.end or (linked and start - 400 <= high and exception.end + 400 >= low):
            low, high = min(low, start), max(high, exception.end)
    return low, high
