"""A change of rules, and the answers of the rule bases before and after it.

A text is scanned once for both. Unchanged rules are evaluated once, because rules are independent
(`kb.diagnosis.findings.evaluate_rules`). Drafts and shadow rules are evaluated as if they were active.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bot.authoring.selftest import evidence_of
from bot.learning.outcomes import faults_of
from bot.rulebase.loader import Knowledge, engine, knowledge, read_files, site_files, today
from kb.diagnosis.engine import answered
from kb.diagnosis.findings import Finding, combine_findings, evaluate_rules
from kb.errors import RuleError
from kb.facts.history import History
from kb.facts.job_facts import Facts
from kb.learning.required_literals import Sieve, sieve
from kb.rulebase.codec import meaning
from kb.rulebase.overlay import NAME
from kb.rulebase.rule import FaultClass, Rule, Rulebook, SiteFiles
from kb.rulebase.rulebook import load
from kb.scanning.matcher import Hit, Matcher
from kb.scanning.plan import ScanPlan, active
from kb.scanning.plan_builder import joined, lines_plan

_NEW = "~new~"  # prefix of a changed rule's id while texts are scanned; no rule id contains it
_VOCABULARY = ("faults.yaml", "actions.yaml", "VERSION")
_FILES = (*_VOCABULARY, "rule.yaml")


# --- values ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RuleFiles:
    """A rule base with its files by path below its folder, and the site's overlay."""

    known: Knowledge
    files: Mapping[str, str]
    site: SiteFiles | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    """A rule base, the same rule base with a change, and the ids of the rules that the change affects.

    In `new`, changed rules with status draft or shadow are evaluated as if they were active.
    """

    known: Knowledge
    new: Rulebook
    rules: tuple[str, ...]

    @property
    def old(self) -> Rulebook:
        """Return the rules without the change."""
        return self.known.rulebook


@dataclass(frozen=True, slots=True)
class FirstAnswer:
    """A first answer: the verdict and, if there is one, the fault and rule."""

    verdict: str
    fault: str | None = None
    rule: str | None = None

    @property
    def words(self) -> str:
        """Format as `signalbox rules diff` does."""
        return f"{self.fault} ({self.rule})" if self.fault else self.verdict


# --- the two rule bases ----------------------------------------------------------------------------------------------


def base_of(folder: Path, site: Path | None = None) -> RuleFiles:
    """Return the rule base of a folder with the overlay in force.

    Raises:
        RuleError, UnreadableInput: see `bot.rulebase.loader.knowledge`.
    """
    return RuleFiles(knowledge(folder, site), read_files(folder)[0], site_files(site)[0])


def trial(base: RuleFiles, extra: Mapping[str, str | bytes | None]) -> Trial:
    """Return a change of a rule base. Files: path → text of added or replaced files, None for deleted ones.

    Files that are not rule files (test logs) are ignored.

    Raises:
        RuleError: the changed files have errors.
    """
    changed = {
        path: _text(text)
        for path, text in extra.items()
        if path.split("/")[-1] in _FILES and _text(text) != base.files.get(path)
    }
    old, day = base.known.rulebook, today()
    if not changed.keys().isdisjoint(_VOCABULARY):
        return between(base.known, _whole(base, changed, day))
    names = {path.split("/")[-2] for path in changed if "/" in path}
    others = frozenset(rule.id for rule in old.rules) - names
    files = {path: text for path, text in changed.items() if text is not None}
    vocabulary = {path: base.files[path] for path in _VOCABULARY if path in base.files}
    site = None if base.site is None else SiteFiles(base.site.root, {NAME: base.site.files.get(NAME, "")})
    loaded = load({**vocabulary, **files}, site if site is not None and site.files[NAME] else None, day, others=others)
    if faults := [fault for fault in loaded.faults if fault.file in files]:
        raise RuleError(faults)
    rules = (*(rule for rule in old.rules if rule.id not in names), *loaded.rulebook.rules)
    return between(base.known, replace(old, rules=tuple(sorted(rules, key=lambda rule: rule.id))))


def _text(text: str | bytes | None) -> str | None:
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text


def _whole(base: RuleFiles, changed: Mapping[str, str | None], day: str) -> Rulebook:
    """Load all rules again, because a vocabulary file changed that any of them may use."""
    files = {path: text for path, text in {**base.files, **changed}.items() if text is not None}
    loaded = load(files, base.site, day)
    known = {(fault.file, fault.message) for fault in base.known.faults}
    if fresh := [fault for fault in loaded.faults if (fault.file, fault.message) not in known]:
        raise RuleError(fresh)
    return loaded.rulebook


def between(known: Knowledge, new: Rulebook) -> Trial:
    """Return a rule base, the changed rules, and their differences."""
    old = known.rulebook
    was, now = ({rule.id: rule for rule in book.rules} for book in (old, new))
    classes = {name for name in {*old.faults, *new.faults} if not _same(old.faults.get(name), new.faults.get(name))}
    touched = {
        name
        for name in {*was, *now}
        if name not in was
        or name not in now
        or _acts(was[name]) != _acts(now[name])
        or not classes.isdisjoint(faults_of(was[name]) | faults_of(now[name]))
    }
    tried = tuple(_speaking(rule) if rule.id in touched else rule for rule in new.rules)
    return Trial(known, replace(new, rules=tried), tuple(sorted(touched)))


def _same(left: FaultClass | None, right: FaultClass | None) -> bool:
    """Whether two fault classes rank the same. Their titles may differ."""
    parts = ("symptom", "outlives", "explains")
    return left is not None and right is not None and all(getattr(left, part) == getattr(right, part) for part in parts)


def _acts(rule: Rule) -> tuple[object, ...]:
    return meaning(rule), dict(rule.applies_to), rule.site


def _speaking(rule: Rule) -> Rule:
    return replace(rule, status="experimental") if rule.status in ("draft", "shadow") else rule


def _spoke(rule: Rule) -> bool:
    return active(rule) and rule.status != "shadow"


# --- one text under both ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TrialResult:
    """The answers of both rule bases to one text. `spoke`: changed rule → the faults that it now finds."""

    old: FirstAnswer
    new: FirstAnswer
    spoke: Mapping[str, frozenset[str]]


class TrialJudge:
    """Evaluates texts with two rule bases at once. Texts are scanned once, and unchanged rules are evaluated once."""

    def __init__(self, trial_: Trial) -> None:
        touched = set(trial_.rules)
        self.trial = trial_
        self.sifting: Sieve = sieve(
            rule for book in (trial_.old, trial_.new) for rule in book.rules if rule.id in touched and _spoke(rule)
        )
        self._same = [rule for rule in trial_.new.rules if rule.id not in touched and _spoke(rule)]
        self._old = [rule for rule in trial_.old.rules if rule.id in touched and _spoke(rule)]
        self._will = {f"{_NEW}{rule.id}": rule for rule in trial_.new.rules if rule.id in touched and _spoke(rule)}
        self._new = [replace(rule, id=name) for name, rule in self._will.items()]
        self._more = lines_plan(self._new)
        self._known = replace(trial_.known, plan=joined(trial_.known.plan, self._more))
        self._matcher: Matcher | None = None
        self._needles: Matcher | None = None

    def sift(self, text: bytes) -> tuple[bool, int]:
        """Return whether the change can affect a text, and how many lines the engine reports for line patterns."""
        if not self.sifting.patterns:
            return bool(self.sifting.wanted), 0
        if self._needles is None:
            self._needles = engine()(self.sifting.patterns)
        if b"\r" in text:
            text = text.replace(b"\r", b"\n")
        hits = self._needles.hits(text)
        asked = {(pattern, text.rfind(b"\n", 0, at)) for pattern, at in hits if pattern in self.sifting.lines}
        return self.sifting.lets({pattern for pattern, _ in hits}), len(asked)

    def hear(self, streams: Mapping[str, bytes]) -> TrialResult | None:
        """Return both answers for some streams, or None if no changed rule fires before or after, so that nothing changes."""
        if self._matcher is None:
            self._matcher = _CombinedMatcher(
                self.trial.known.matcher(), self._more, len(self.trial.known.plan.patterns)
            )
        facts = Facts(evidence_of(self._known, self._matcher, streams))
        old = evaluate_rules(self.trial.old, self._old, facts, History()).findings
        new = [
            replace(finding, rule=self._will[finding.rule.id])
            for finding in evaluate_rules(self.trial.new, self._new, facts, History()).findings
        ]
        if not new and not old:
            return None
        same = evaluate_rules(self.trial.new, self._same, facts, History()).findings
        after, before = _ordered((*same, *new), facts), _ordered((*same, *old), facts)
        touched = {rule.id for rule in self._will.values()}
        spoke: dict[str, frozenset[str]] = {}
        for item in after:
            if item.rule.id in touched and item.role != "context":
                spoke[item.rule.id] = spoke.get(item.rule.id, frozenset()) | {item.fault.id}
        return TrialResult(_first(before, facts), _first(after, facts), spoke)


class _CombinedMatcher:
    """Combines the engine of a rule base with one for a few additional patterns, so that the first need not be recompiled."""

    name = "both"

    def __init__(self, first: Matcher, more: ScanPlan, shift: int) -> None:
        self._first, self._shift = first, shift
        self._more = engine()(more.patterns) if more.patterns else None

    def hits(self, block: bytes) -> list[Hit]:
        """See `Matcher.hits`."""
        found = self._first.hits(block)
        if self._more is not None:
            found += [(pattern + self._shift, at) for pattern, at in self._more.hits(block)]
        return found

    def lines(self, block: bytes) -> tuple[list[Hit], dict[int, list[int]]]:
        """See `Matcher.lines`."""
        return self.hits(block), {}

    def dump(self) -> bytes | None:
        """Not cached."""
        return None


def _ordered(heard: Sequence[Finding], facts: Facts) -> tuple[Finding, ...]:
    return combine_findings(sorted(heard, key=lambda finding: finding.rule.id), facts)


def _first(findings: Sequence[Finding], facts: Facts) -> FirstAnswer:
    verdict, ranked, _ = answered(findings, facts)
    best = ranked[0].best if ranked else None
    return FirstAnswer(verdict, best.fault.id, best.rule.id) if best and best.rule.id else FirstAnswer(verdict)
