"""Rules in status shadow: evaluated on every live incident and counted, but not shown; and their promotion.

A shadow rule is promoted on evidence only: enough incidents in which people named the cause that it would have named,
and a precision whose lower bound is high enough. Neither its age nor the hits of an earlier version count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlmodel import Session, col

from bot.learning.outcomes import ReviewedIncident, told_within
from bot.rulebase.loader import Knowledge
from bot.store.tables import ShadowHitRow
from kb.diagnosis.engine import answered
from kb.diagnosis.findings import Finding, combine_findings, evaluate_rules
from kb.facts.evidence import Evidence
from kb.facts.history import History
from kb.facts.job_facts import Facts
from kb.learning.precision import HitRate, fits
from kb.learning.yaml_edits import with_value
from kb.rulebase.codec import meaning
from kb.rulebase.rule import Rule, Rulebook
from kb.scanning.plan import active


@dataclass(frozen=True, slots=True)
class PromotionThreshold:
    """The evidence required for promotion: `right` correct incidents, and 95 % certainty of at least `precision`."""

    right: int = 5
    precision: float = 0.7


@dataclass(frozen=True, slots=True)
class ShadowHit:
    """A hit of a shadow rule in an incident: the rule with version and meaning (kb.rulebase.codec), and the fault it would name.

    `leads`: this fault would have been the first answer.
    """

    rule: str
    version: int
    meaning: str
    fault: str
    leads: bool


@dataclass(frozen=True, slots=True)
class ShadowStats:
    """The record of the current version of a shadow rule: hits, how many led, how many had a known cause, and how many were right.

    `earned`: the rule may be promoted. `lacks`: what it still lacks, in words.
    """

    rule: str
    hits: int
    leads: int
    right: HitRate
    lacks: str = ""

    @property
    def earned(self) -> bool:
        """Whether the rule can be promoted."""
        return not self.lacks


# --- live incidents --------------------------------------------------------------------------------------------------


def shadows_of(rulebook: Rulebook) -> tuple[Rule, ...]:
    """Return the rules in status shadow."""
    return tuple(rule for rule in rulebook.rules if rule.status == "shadow")


def shadowed(known: Knowledge, evidence: Evidence, history: History | None = None) -> tuple[ShadowHit, ...]:
    """Return the hits of the shadow rules in an incident. Costs nothing if there are no shadow rules or none of them fires."""
    shadows = shadows_of(known.rulebook)
    if not shadows or not any(_hit(rule, evidence) for rule in shadows):
        return ()
    book, history = known.rulebook, history or History()
    facts = Facts(evidence)
    heard = evaluate_rules(book, shadows, facts, history).findings
    if not heard:
        return ()
    shown = evaluate_rules(
        book, (rule for rule in book.rules if active(rule) and rule.status != "shadow"), facts, history
    )
    found = (_found(book, rule, heard, shown.findings, facts) for rule in shadows)
    return tuple(shadow_stats for shadow_stats in found if shadow_stats is not None)


def _hit(rule: Rule, evidence: Evidence) -> bool:
    """Whether a rule could fire: one of its line patterns matched, or it needs more than lines."""
    keys = [f"{rule.id}#{pattern.name}" for pattern in rule.patterns if pattern.literal or pattern.regex]
    return len(keys) < len(rule.patterns) or any(key in stream.hits for stream in evidence.streams for key in keys)


def _found(
    book: Rulebook, rule: Rule, heard: Sequence[Finding], shown: Sequence[Finding], facts: Facts
) -> ShadowHit | None:
    """Return the shadow findings that survive ranking together with everything that is shown."""
    own = [finding for finding in heard if finding.rule.id == rule.id]
    standing = combine_findings(sorted((*own, *shown), key=lambda finding: finding.rule.id), facts) if own else ()
    kept = [finding for finding in standing if finding.rule.id == rule.id and finding.role != "context"]
    if not kept:
        return None
    _, ranked, _ = answered(standing, facts)
    best = ranked[0].best if ranked else None
    leads = best is not None and best.rule.id == rule.id
    fault = best.fault.id if best is not None and leads else kept[0].fault.id
    return ShadowHit(rule.id, book.versions.get(rule.id, 1), meaning(rule), fault, leads)


def count_within(session: Session, incident: int, tenant: str, hits: Iterable[ShadowHit]) -> None:
    """Count shadow hits in the transaction that stores the incident; each rule counts once per incident."""
    for hit in hits:
        if session.get(ShadowHitRow, (incident, hit.rule)) is None:
            row = ShadowHitRow(
                incident_id=incident,
                rule=hit.rule,
                tenant=tenant,
                version=hit.version,
                meaning=hit.meaning,
                fault=hit.fault,
                leads=hit.leads,
            )
            session.add(row)


# --- promotion -------------------------------------------------------------------------------------------------------


def shadows_within(
    session: Session, rulebook: Rulebook, tenant: str | None = None, bar: PromotionThreshold | None = None
) -> tuple[ShadowStats, ...]:
    """The statistics of each shadow rule, promotable ones first."""
    known = {rule.id: meaning(rule) for rule in shadows_of(rulebook)}
    if not known:
        return ()
    query = select(ShadowHitRow).where(col(ShadowHitRow.rule).in_(known))
    if tenant is not None:
        query = query.where(col(ShadowHitRow.tenant) == tenant)
    rows: dict[str, list[ShadowHitRow]] = {name: [] for name in known}
    for row in session.execute(query).scalars():
        if row.meaning == known[row.rule]:
            rows[row.rule].append(row)
    told = told_within(session, tenant)
    found = (_fared(rulebook, name, own, told, bar or PromotionThreshold()) for name, own in rows.items())
    return tuple(
        sorted(found, key=lambda shadow_stats: (not shadow_stats.earned, -shadow_stats.right.low, shadow_stats.rule))
    )


def _fared(
    book: Rulebook,
    name: str,
    rows: Sequence[ShadowHitRow],
    told: Mapping[int, ReviewedIncident],
    bar: PromotionThreshold,
) -> ShadowStats:
    # a hit on a merged incident does not count: the incident that it was merged into has its own hit
    own = [row for row in rows if row.incident_id in told]
    judged = [fits(book, truth, row.fault) for row in own if (truth := told[row.incident_id].truth) is not None]
    right = HitRate(sum(judged), len(judged))
    return ShadowStats(name, len(own), sum(row.leads for row in own), right, _lacks(right, bar))


def _lacks(right: HitRate, bar: PromotionThreshold) -> str:
    if right.hits < bar.right:
        return f"correct in {right.hits} resolved incidents; {bar.right} are needed"
    if right.low < bar.precision:
        return f"correct in at least {right.low:.0%} with 95 % certainty; {bar.precision:.0%} are needed"
    return ""


def promoted(text: str) -> str:
    """Return the rule.yaml of a shadow rule, with its status changed to a visible one."""
    return with_value(text, "status", "experimental")


def render(found: Sequence[ShadowStats]) -> str:
    """Render the shadow rules as text."""
    if not found:
        return "no rules in status shadow"
    texts = [
        f"{shadow_stats.hits:6d} {shadow_stats.leads:6d}  {shadow_stats.rule}: {shadow_stats.right.words}; {shadow_stats.lacks or 'it can be promoted'}"
        for shadow_stats in found
    ]
    lines = [f"{'hits':>6} {'first':>6}  correct, by resolution; missing for promotion", *texts]
    return "\n".join(lines)


def as_json(found: Sequence[ShadowStats]) -> Iterator[Mapping[str, Any]]:
    """Return each shadow rule as plain values."""
    for shadow_stats in found:
        yield {
            "rule": shadow_stats.rule,
            "hits": shadow_stats.hits,
            "leads": shadow_stats.leads,
            "right": shadow_stats.right.hits,
            "n": shadow_stats.right.n,
            "low": shadow_stats.right.low,
            "earned": shadow_stats.earned,
            "lacks": shadow_stats.lacks,
        }
