"""From rules to findings: which rules hold on the facts, split by table row, and which stay silent behind others."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kb.evaluate import Evaluator, by_time
from kb.evidence import Facts, History, Signal
from kb.model import Role
from kb.report import NotEvaluated
from kb.rule import FaultClass, Row, Rule, Rulebook
from kb.scanplan import active

_HOLE = re.compile(r"\{(\w+)(?:\|([^}]*))?\}")


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that holds: its fault and role (a table row may change both) and the signals behind it, in order of time."""

    rule: Rule
    fault: FaultClass
    role: Role
    signals: tuple[Signal, ...]
    row: Row | None = None
    captures: Mapping[str, str] = field(default_factory=dict)
    count: int = 0
    ranks: frozenset[int] = frozenset()

    @property
    def first(self) -> Signal:
        """The earliest signal."""
        return self.signals[0]

    @property
    def is_symptom(self) -> bool:
        """Whether it only reports that something else came first."""
        return self.role == "symptom" or self.fault.symptom

    def fill(self, text: str) -> str:
        """Fill the holes of a text: `{name}` or `{name|default}`."""
        filled = _HOLE.sub(lambda hole: self.captures.get(hole[1]) or (hole[2] if hole[2] is not None else "?"), text)
        return filled.replace("Rank ?", "A rank").replace("rank ?", "a rank")


def find(rulebook: Rulebook, facts: Facts, history: History) -> tuple[list[Finding], list[NotEvaluated]]:
    """Judge every active rule; give the findings that stand and the rules that could not be judged."""
    found: list[Finding] = []
    open_: list[NotEvaluated] = []
    for rule in rulebook.rules:
        if not active(rule) or rule.status == "shadow":
            continue
        evaluator = Evaluator(rule, facts, history)
        answer = evaluator.judge()
        if answer.truth is None:
            open_.append(NotEvaluated(rule.id, answer.needs))
        elif answer.truth and answer.signals:
            split = _split(rulebook, rule, answer.signals)
            if len(split) == 1:
                count, ranks = evaluator.tally(split[0].signals)
                split = [replace(split[0], count=count, ranks=split[0].ranks | ranks)]
            found.extend(split)
    found = [finding for one in found if (finding := _living(one)) is not None]
    return _without_fallbacks(found, facts), open_


def _split(rulebook: Rulebook, rule: Rule, signals: Sequence[Signal]) -> list[Finding]:
    ordered = by_time({(s.stream, s.offset, s.key): s for s in signals}.values())
    if rule.table is None:
        return [_finding(rulebook, rule, None, ordered)]
    rows: dict[str, list[Signal]] = {}
    for signal in ordered:
        key = signal.captures.get(rule.table.key)
        if key is not None:
            rows.setdefault(key, []).append(signal)
    found = []
    for key, group in rows.items():
        row = rule.table.rows.get(key, rule.table.default)
        if row is not None and not row.ignore:
            found.append(_finding(rulebook, rule, replace(row, key=key), group))
    return found


def _finding(rulebook: Rulebook, rule: Rule, row: Row | None, signals: Sequence[Signal]) -> Finding:
    fault = rulebook.faults[(row.fault if row and row.fault else rule.fault)]
    role = row.role if row and row.role else rule.role
    return Finding(rule, fault, role, tuple(signals), row, _words(row, signals), len(signals), _ranks(signals))


def _words(row: Row | None, signals: Sequence[Signal]) -> dict[str, str]:
    """What a rule's texts may name: captures, the earliest signal's first, and where that one stood."""
    first = signals[0]
    captures: dict[str, str] = {}
    for signal in reversed(signals):
        captures.update(signal.captures)
    for name, value in (
        ("rank", first.resource.rank),
        ("node", first.resource.node),
        ("iteration", first.iteration),
        ("stage", first.stage),
        ("gpu", first.captures.get("pci") or first.resource.gpu),
    ):
        if value is not None:
            captures.setdefault(name, str(value))
    if row is not None:
        captures["key"] = row.key
        captures["title"] = row.title
    return captures


def _ranks(signals: Sequence[Signal]) -> frozenset[int]:
    return frozenset(signal.resource.rank for signal in signals if signal.resource.rank is not None)


def _only(finding: Finding, signals: tuple[Signal, ...]) -> Finding | None:
    """The finding with some of its signals; its texts and counts speak of those alone. None where none is left."""
    if len(signals) == len(finding.signals):
        return finding
    if not signals:
        return None
    words = _words(finding.row, signals)
    return replace(finding, signals=signals, captures=words, count=len(signals), ranks=_ranks(signals))


def _living(finding: Finding) -> Finding | None:
    """Without the signals after which the run went on, unless the fault is one that a run can live with."""
    if finding.fault.outlives:
        return finding
    return _only(finding, tuple(signal for signal in finding.signals if not signal.survived))


def _without_fallbacks(found: list[Finding], facts: Facts) -> list[Finding]:
    """Rules of last resort lose every signal that another rule explains, and every exception of a chain of which it explains a part."""
    others = [one for one in found if not one.rule.fallback and one.role != "context"]
    covered: dict[int, list[tuple[int, int]]] = {}
    for one in others:
        for signal in one.signals:
            low, high = chain_span(signal, facts) if not one.is_symptom else signal.span
            covered.setdefault(signal.stream, []).append((low, high))
    kept = []
    for one in found:
        if not one.rule.fallback:
            kept.append(one)
            continue
        free = tuple(
            s
            for s in one.signals
            if not any(low <= s.offset < high or low <= s.span[0] < high for low, high in covered.get(s.stream, ()))
        )
        left = _only(one, free)
        if left is not None:
            kept.append(left)
    return kept


def chain_span(signal: Signal, facts: Facts) -> tuple[int, int]:
    """The bytes of the whole chain of exceptions that a signal is part of, or its own."""
    low, high = signal.span
    for one in facts.streams[signal.stream].exceptions:
        start = int(one.fields.get("start") or one.offset)
        linked = int(one.fields.get("chain") or 0) > 0 or bool(one.fields.get("chained"))
        if start <= signal.offset < one.end or (linked and start - 400 <= high and one.end + 400 >= low):
            low, high = min(low, start), max(high, one.end)
    return low, high
