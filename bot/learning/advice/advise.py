"""Advice on rules from closed incidents (correct, narrow, widen, link, promote, retire), and the most expensive unknown failures.

Each piece of advice names its incidents and n and, where possible, the files to change. These can become a pull request, like a
mined rule. This module changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, Literal

import msgspec
from sqlmodel import Session

from bot.learning.advice.history import AdviceHistory, StoredReport, reports_of
from bot.learning.advice.test_logs import cleaner_of, fit, match_logs, narrowed_edge, silent_logs, widened_edge
from bot.learning.advice.unknowns import UnknownFailure, unknown
from bot.learning.outcomes import ReviewedIncident, faults_of, looked_within, outcomes, told_within
from bot.learning.replay.shadow import PromotionThreshold, promoted, shadows_within
from bot.learning.replay.trial import RuleFiles
from kb.learning.cases import Case
from kb.learning.negative_corpus import Background, background, negative_case
from kb.learning.precision import HitRate, RuleOutcome
from kb.learning.refinement import LEAST_WRONG, NearestLine, exclusion, nearest, pairs, widening
from kb.learning.yaml_edits import value_of, with_pattern, with_value
from kb.rulebase.rule import Rule
from kb.scanning.plan import active

MOST_AGAINST = 200  # incidents of other faults on which a wider pattern is tested
MOST_MISSED = 12
LEAST_SAME, SAME = 5, 0.9  # a rule that was never right gets a different class if this many people named the same one
LEAST_WEAK, WEAK = (
    3,
    0.7,
)  # with a smaller share of right answers in this many close-outs, a person must review the rule; no change is suggested
WINDOW_DAYS, WINDOW_INCIDENTS = 180, 200  # days of evidence before a rule that never fired may be retired

Kind = Literal["correct", "narrow", "widen", "link", "promote", "retire"]


@dataclass(frozen=True, slots=True)
class RuleAdvice:
    """What to do with a rule, and why. `files`: path below the rules folder → new text; empty if a person must write the change.

    `patterns`: regexes that the change adds to the rule. All texts in it are anonymised (`bot.learning.drafts.anonymise`).
    """

    kind: Kind
    rule: str
    title: str
    reasons: tuple[str, ...]
    incidents: tuple[int, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    patterns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AdviceReport:
    """All advice, and the list of unknown failures, most expensive first."""

    advice: tuple[RuleAdvice, ...]
    unknown: tuple[UnknownFailure, ...]


def advise(
    session: Session,
    base: RuleFiles,
    now: datetime,
    *,
    tenant: str | None = None,
    bar: PromotionThreshold | None = None,
) -> AdviceReport:
    """Return the advice that a store supports."""
    reviewed = told_within(session, tenant)
    seen = AdviceHistory(session, base, reviewed, reports_of(session, list(reviewed)), now)
    looked = looked_within(session)
    found = outcomes(base.known.rulebook, reviewed.values(), looked)
    shadows = shadows_within(session, base.known.rulebook, tenant, bar)
    advice = (
        *_narrowed(seen, found, looked),
        *_widened(seen),
        *_linked(seen),
        *(_promotion(seen, shadow.rule, shadow.right) for shadow in shadows if shadow.earned),
        *_retired(seen, found),
    )
    return AdviceReport(advice, tuple(unknown(seen)))


# --- rules that were wrong -------------------------------------------------------------------------------------------


def _narrowed(
    seen: AdviceHistory, found: Sequence[RuleOutcome], looked: Mapping[tuple[str, str], datetime]
) -> Iterator[RuleAdvice]:
    for rule_outcome in found:
        rule = seen.rule(rule_outcome.rule)
        if rule is None:
            continue
        own = [
            reviewed
            for reviewed in seen.told.values()
            if reviewed.rule == rule.id and not reviewed.disputed and _fresh(reviewed, looked)
        ]
        wrong = [reviewed.incident for reviewed in own if reviewed.right is False]
        right = [reviewed.incident for reviewed in own if reviewed.right]
        if (
            len(wrong) >= LEAST_WRONG
            and (advice := _narrower(seen, rule, rule_outcome.precision, wrong, right)) is not None
        ):
            yield advice


def _fresh(told: ReviewedIncident, looked: Mapping[tuple[str, str], datetime]) -> bool:
    """Whether the incident was judged after the last review of its rule."""
    since = looked.get((told.tenant, told.rule or ""))
    return since is None or (told.judged is not None and told.judged > since)


def _names_one_fault(rule: Rule) -> bool:
    """Whether every line that a rule matches is its own fault, so that its fault and patterns can be changed as they are."""
    return rule.table is None or rule.table.only_words


def _narrower(
    seen: AdviceHistory, rule: Rule, precision: HitRate, wrong: Sequence[int], right: Sequence[int]
) -> RuleAdvice | None:
    text, numbers = seen.text(rule), tuple(wrong)
    why = f"its first answer was {precision.words}; instead people named {_truths(seen, wrong)}"
    title = f"{rule.id} was wrong in {len(wrong)} incidents"
    if text is None:
        return RuleAdvice("narrow", rule.id, title, (why, "it is in the site overlay; change it there"), numbers)
    named = _always(seen, wrong) if not right and _names_one_fault(rule) else None
    if named is not None:
        files = {rule.file: with_value(text, "fault", named)}
        return RuleAdvice("correct", rule.id, f"{rule.id} names {named}", (why,), numbers, files)
    compared = sorted(wrong, reverse=True)[:MOST_MISSED]
    cases = seen.cases(compared)
    names = frozenset().union(*(case.names for case in cases))
    others = seen.cases(sorted(right, reverse=True)[:MOST_AGAINST])
    apart = exclusion(cases, others, lambda item: fit(item, names))
    if apart is None:
        if precision.n < LEAST_WEAK or precision.high >= WEAK:
            return None
        few = (
            f"no line separates them from the {len(right)} in which it was correct" if right else "it was never correct"
        )
        return RuleAdvice("narrow", rule.id, title, (why, few), numbers)
    narrower = _excluding(text, dict(apart.values), len(wrong), len(right))
    edge, tested = narrowed_edge(seen.base, rule, narrower, apart, cases)
    files = {rule.file: narrower, **silent_logs(seen.base, rule, narrower, apart, cases), **edge}
    told_by = f"{apart.search!r} occurs in the {len(apart.support)} examined and in none of the {len(right)} others"
    title = f"exclude lines with {apart.search[:80]!r} from {rule.id}"
    return RuleAdvice("narrow", rule.id, title, (why, told_by, *tested), numbers, files, (apart.search,))


def _truths(seen: AdviceHistory, numbers: Sequence[int]) -> str:
    """Return the causes that people named instead, with their counts."""
    named = Counter(seen.told[number].truth or "no fault" for number in numbers)
    return ", ".join(f"{name} ({count})" for name, count in named.most_common(3))


def _always(seen: AdviceHistory, numbers: Sequence[int]) -> str | None:
    """Return the fault that people named almost every time, if they did so often enough; otherwise None."""
    named, count = Counter(seen.told[number].truth for number in numbers).most_common(1)[0]
    enough = len(numbers) >= LEAST_SAME and count >= SAME * len(numbers)
    return named if enough and named in seen.base.known.rulebook.faults else None


def _excluding(text: str, values: Mapping[str, Any], wrong: int, right: int) -> str:
    """Return the rule with an additional pattern that silences it. A rule without a condition gets one that excludes the pattern."""
    names = list(value_of(text, "match"))
    name = _free(names, "elsewhere")
    if value_of(text, "when") is None:
        text = with_value(text, "when", " or ".join(names))
    exceptions = value_of(text, "not_when") or []
    reason = f"people named another cause in all {wrong} incidents with this line and in none of {right} without it"
    return with_value(with_pattern(text, name, values), "not_when", [*exceptions, {"reason": reason, "if": name}])


def _free(names: Sequence[str], name: str) -> str:
    return next(text for text in (name, *(f"{name}_{at}" for at in range(2, 99))) if text not in names)


# --- rules that missed -----------------------------------------------------------------------------------------------


def _widened(seen: AdviceHistory) -> Iterator[RuleAdvice]:
    missed: dict[str, list[int]] = {}
    for entry in seen.told.values():
        if entry.truth is not None and entry.truth != entry.fault and not entry.disputed:
            missed.setdefault(entry.truth, []).append(entry.incident)
    for fault, numbers in sorted(missed.items(), key=lambda item: (-len(item[1]), item[0])):
        if len(numbers) < LEAST_WRONG:
            continue
        cases = seen.cases(sorted(numbers, reverse=True)[:MOST_MISSED])
        best = _nearest(seen, fault, cases)
        if best is not None:
            yield _wider(seen, best, cases, fault, len(numbers))


def _nearest(seen: AdviceHistory, fault: str, cases: Sequence[Case]) -> tuple[Rule, NearestLine] | None:
    texts = [text for case in cases for text in case.texts.values()]
    rules = [
        rule
        for rule in seen.base.known.rulebook.rules
        if active(rule) and not rule.fallback and fault in faults_of(rule)
    ]
    found = [(rule, near) for rule in rules if (near := nearest(rule, texts)) is not None and near.lacks]
    return max(found, key=lambda item: (item[1].score, item[0].id), default=None)


def _wider(
    seen: AdviceHistory, best: tuple[Rule, NearestLine], cases: Sequence[Case], fault: str, count: int
) -> RuleAdvice:
    rule, near = best
    lacks = ", ".join(repr(word) for word in near.lacks[:5])
    cleaner = cleaner_of(seen.base, cases)
    reasons = [
        f"{count} incidents were closed as {fault} and another answer, or none, came first",
        f"nearest to its pattern {near.pattern} ({near.score:.0f} of 100): {cleaner.line(near.line)[:160]!r}, which has no {lacks}",
    ]
    title = f"{rule.id} missed {count} incidents"
    numbers = tuple(case.id for case in cases)
    text = seen.text(rule)
    if text is None or not _names_one_fault(rule):
        return RuleAdvice("widen", rule.id, title, tuple(reasons), numbers)
    apart = widening(cases, near.line, _against(seen, fault), fault, lambda item: fit(item, cleaner.names))
    if apart is None:
        reasons.append("no pattern for such lines avoids incidents of other faults")
        return RuleAdvice("widen", rule.id, title, tuple(reasons), numbers)
    reasons.append(
        f"{apart.search!r} matches {len(apart.support)} of {len(cases)} of them and no incident of another fault"
    )
    wider = _also(text, dict(apart.values))
    edge, tested = widened_edge(seen.base, rule, wider, apart, cases)
    files = {rule.file: wider, **match_logs(seen.base, rule, wider, apart, cases), **edge}
    return RuleAdvice("widen", rule.id, title, (*reasons, *tested), numbers, files, (apart.search,))


def _against(seen: AdviceHistory, fault: str) -> Background:
    others = [item.incident for item in seen.told.values() if item.truth not in (None, fault)]
    return background(negative_case(case) for case in seen.cases(sorted(others, reverse=True)[:MOST_AGAINST]))


def _also(text: str, values: Mapping[str, Any]) -> str:
    """Return the rule with an additional pattern on which it also fires."""
    name = _free(list(value_of(text, "match")), "also")
    when = value_of(text, "when")
    if isinstance(when, str):
        text = with_value(text, "when", f"({when}) or {name}")
    elif when is not None:
        text = with_value(text, "when", {"any": [when, name]})
    return with_pattern(text, name, values)


# --- faults that occur together ---------------------------------------------------------------------------------------


def _linked(seen: AdviceHistory) -> Iterator[RuleAdvice]:
    book = seen.base.known.rulebook
    orders = {number: _order(report, book.faults) for number, report in seen.reports.items()}
    for pair in pairs({number: order for number, order in orders.items() if len(order) > 1}):
        cause, effect = book.faults.get(pair.cause), book.faults.get(pair.effect)
        if cause is None or effect is None or effect.id in cause.explains or cause.id in effect.explains:
            continue
        truths = Counter(seen.told[number].truth for number in pair.incidents)
        rules = Counter(
            diagnosis.rule
            for number in pair.incidents
            for diagnosis in seen.reports[number].diagnoses
            if diagnosis.fault == pair.cause
        )
        rule = seen.rule(rules.most_common(1)[0][0])
        if rule is None or effect.id in rule.explains or truths[effect.id] >= max(1, truths[cause.id]):
            continue
        order = f"{cause.id} came before {effect.id} in {HitRate(pair.in_order, pair.together).words} incidents that have both"
        reason = f"people named {cause.id} in {truths[cause.id]} of them, {effect.id} in {truths[effect.id]}"
        text = seen.text(rule)
        explains = [*(value_of(text, "explains") or []), effect.id] if text is not None else []
        files = {rule.file: with_value(text, "explains", explains)} if text is not None else {}
        title = f"{rule.id}: {cause.id} causes {effect.id}"
        yield RuleAdvice("link", rule.id, title, (order, reason), pair.incidents, files)


def _order(report: StoredReport, faults: Mapping[str, Any]) -> list[str]:
    """Return the faults of a report that are not symptoms, in the order in which they were first seen, or by rank if they have no time."""
    found = [diagnosis for diagnosis in report.diagnoses if diagnosis.role in ("root_cause", "contributing")]
    found = [item for item in found if item.fault in faults and not faults[item.fault].symptom]
    if all(item.first_seen is not None for item in found):
        found.sort(key=lambda item: item.first_seen or "")
    return [item.fault for item in found]


# --- shadows, and rules that never fire ------------------------------------------------------------------------------


def _promotion(seen: AdviceHistory, name: str, right: HitRate) -> RuleAdvice:
    rule = seen.rule(name)
    text = seen.text(rule) if rule is not None else None
    files = {rule.file: promoted(text)} if rule is not None and text is not None else {}
    return RuleAdvice(
        "promote", name, f"{name} can be promoted", (f"as a shadow rule it was correct in {right.words}",), (), files
    )


def _retired(seen: AdviceHistory, found: Sequence[RuleOutcome]) -> Iterator[RuleAdvice]:
    """Return the site's own rules that never fired, and the number of shipped ones, which other sites may need."""
    times = [item.at for item in seen.told.values()]
    days = (seen.now - min(times)).days if times else 0
    if days < WINDOW_DAYS or len(times) < WINDOW_INCIDENTS:
        return
    spoke = {diagnosis.rule for report in seen.reports.values() for diagnosis in report.diagnoses}
    silent = [
        rule
        for rule_outcome in found
        if not rule_outcome.fired and (rule := seen.rule(rule_outcome.rule)) is not None and rule.id not in spoke
    ]
    silent = [rule for rule in silent if rule.status in ("experimental", "stable")]
    why = f"it was in none of the answers to {len(times)} incidents in {days} days"
    own = [rule for rule in silent if rule.provenance != "hand"]
    for rule in own:
        text = seen.text(rule)
        files = {rule.file: _deprecated(text, seen.now.date(), why)} if text is not None else {}
        yield RuleAdvice("retire", rule.id, f"{rule.id} never fired", (why,), (), files)
    others = sorted(rule.id for rule in silent if rule.provenance == "hand")
    if others:
        named = f"{', '.join(others[:20])}{f' and {len(others) - 20} more' if len(others) > 20 else ''}"
        yield RuleAdvice("retire", "", f"{len(others)} hand-written rules never fired here", (why, named))


def _deprecated(text: str, day: date, why: str) -> str:
    retired = with_value(text, "status", "deprecated")
    return with_value(retired, "deprecated", {"date": day.isoformat(), "reason": why})


# --- for people and programs -----------------------------------------------------------------------------------------


def render(found: AdviceReport) -> str:
    """Render all advice as text."""
    lines: list[str] = []
    for number, item in enumerate(found.advice, start=1):
        lines += told_of(number, item)
    if not found.advice:
        lines.append("the resolved incidents suggest no rule changes")
    if found.unknown:
        lines += ["", "Failures without a rule, by GPU-hours lost:"]
        for group in found.unknown:
            n = len(group.incidents)
            hours = (
                f"{group.hours:,.1f}" if group.known == n else f"at least {group.hours:,.1f} (known for {group.known})"
            )
            truths = (
                f"; closed as {', '.join(f'{name} {count}' for name, count in group.truths.items())}"
                if group.truths
                else ""
            )
            lines.append(f"{hours} GPU-hours, {n} incident{'s' * (n != 1)}: {_numbers(group.incidents)}{truths}")
            lines += [f"    {text}" for text in group.lines]
    return "\n".join(lines)


def told_of(number: int, rule_advice: RuleAdvice) -> Iterator[str]:
    """Render a piece of advice as text. `number`: its position in the list, by which it can be proposed."""
    yield f"{number:3} {rule_advice.kind:8} {rule_advice.title}"
    yield from (f"             - {reason}" for reason in rule_advice.reasons)
    if rule_advice.incidents:
        yield f"             - incidents: {_numbers(rule_advice.incidents)}"
    yield from (f"             - changes {path}" for path in rule_advice.files)


def _numbers(numbers: Sequence[int]) -> str:
    rest = f" and {len(numbers) - 8} more" if len(numbers) > 8 else ""
    return f"{', '.join(map(str, numbers[:8]))}{rest}"


def as_json(found: AdviceReport) -> Mapping[str, Any]:
    """Return all advice as plain values."""
    return {
        "advice": [{"number": at, **msgspec.to_builtins(item)} for at, item in enumerate(found.advice, start=1)],
        "unknown": [msgspec.to_builtins(unknown_failure) for unknown_failure in found.unknown],
    }
