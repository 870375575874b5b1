"""Outcomes of answers: the feedback on each incident, and what follows for each rule and for its confidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import inspect, select
from sqlmodel import Session, col

from bot.incidents.resolution import Annotation, annotations_within, word
from bot.policy.resolution_codes import JUDGED
from bot.store.tables import AnnotationRow, IncidentRow, LookedRow
from bot.store.visibility import visible
from kb.learning.precision import HitRate, RuleOutcome
from kb.rulebase.rule import Rule, Rulebook

_BATCH = 500
_COLUMNS = ("id", "tenant", "created_at", "verdict", "fault", "rule", "gpu_hours_lost", "gpus")


@dataclass(frozen=True, slots=True)
class ReviewedIncident:
    """An incident with its answer and its feedback.

    `fault`, `rule`: those of the first diagnosis. `said`: whether somebody named a cause; `truth`: the last fault named;
    `disputed`: whether others named a different one. `right`: the last verdict on the answer, given at `judged`. `lost`:
    GPU-hours.
    """

    incident: int
    tenant: str
    at: datetime
    verdict: str
    fault: str | None = None
    rule: str | None = None
    said: bool = False
    truth: str | None = None
    disputed: bool = False
    right: bool | None = None
    judged: datetime | None = None
    lost: float | None = None

    @property
    def confirmed(self) -> bool:
        """Whether the first fault was confirmed."""
        return self.fault is not None and self.truth == self.fault


def told_within(session: Session, tenant: str | None = None) -> dict[int, ReviewedIncident]:
    """All incidents, or those of a tenant, with their feedback. Merged and private incidents are omitted."""
    table = inspect(IncidentRow).local_table.c
    query = select(*(table[name] for name in _COLUMNS)).where(table.merged_into.is_(None), visible())
    spoken = select(col(AnnotationRow.incident_id)).distinct()
    if tenant is not None:
        query = query.where(table.tenant == tenant)
        spoken = spoken.join(IncidentRow, table.id == col(AnnotationRow.incident_id)).where(table.tenant == tenant)
    said = _annotations(session, session.execute(spoken).scalars().all())
    return {item[0]: _reviewed(item, said.get(item[0], ())) for item in session.execute(query)}


def _annotations(session: Session, incidents: Sequence[int]) -> Mapping[int, tuple[Annotation, ...]]:
    found: dict[int, tuple[Annotation, ...]] = {}
    for at in range(0, len(incidents), _BATCH):  # databases limit the number of values in a statement
        found |= annotations_within(session, incidents[at : at + _BATCH])
    return found


def _reviewed(row: Sequence[Any], said: Iterable[Annotation]) -> ReviewedIncident:
    number, tenant, at, verdict, fault, rule, lost, gpus = row
    reviewed = ReviewedIncident(number, tenant, at, verdict, fault, rule, lost=lost)
    valid = [annotation for annotation in said if not annotation.void]
    judged = next((annotation for annotation in reversed(valid) if annotation.said.verdict in JUDGED), None)
    if judged is not None:
        reviewed = replace(reviewed, right=judged.said.verdict == "right", judged=judged.at)
    holds = word(valid)
    if holds is None:
        return reviewed
    last = holds.last.said
    hours = last.lost_hours * gpus if last.lost_hours is not None and gpus else lost
    truth = last.fault if last.cause in ("shown", "fault") else None
    return replace(reviewed, said=True, truth=truth, disputed=bool(holds.against), lost=hours)


# --- rules -----------------------------------------------------------------------------------------------------------


def outcomes_within(session: Session, rulebook: Rulebook, tenant: str | None = None) -> tuple[RuleOutcome, ...]:
    """The outcomes of each rule in the rule base and of each rule that ever gave the first answer, worst first.

    Feedback from before a review of the rule (bot.notify.mutes) does not count.
    """
    return outcomes(rulebook, told_within(session, tenant).values(), looked_within(session))


def looked_within(session: Session) -> Mapping[tuple[str, str], datetime]:
    """(tenant, rule) → the time of the last review of a rule that was often wrong."""
    return {(row.tenant, row.rule): row.at for row in session.execute(select(LookedRow)).scalars()}


def outcomes(
    rulebook: Rulebook, told: Iterable[ReviewedIncident], looked: Mapping[tuple[str, str], datetime] | None = None
) -> tuple[RuleOutcome, ...]:
    """`outcomes_within` for rows already read."""
    confirmed, refuted, unseen, missed = (Counter[str]() for _ in range(4))
    naming = _naming(rulebook)
    for reviewed_incident in told:
        if reviewed_incident.rule is not None:
            since = (looked or {}).get((reviewed_incident.tenant, reviewed_incident.rule))
            if reviewed_incident.right is None:
                unseen[reviewed_incident.rule] += 1
            elif since is None or reviewed_incident.judged is None or reviewed_incident.judged > since:
                (confirmed if reviewed_incident.right else refuted)[reviewed_incident.rule] += 1
        if reviewed_incident.truth is not None and reviewed_incident.truth != reviewed_incident.fault:
            missed.update(naming.get(reviewed_incident.truth, ()))
    names = {*confirmed, *refuted, *unseen, *(rule.id for rule in rulebook.rules)}
    found = [RuleOutcome(name, confirmed[name], refuted[name], unseen[name], missed[name]) for name in names]
    return tuple(sorted(found, key=_worst_first))


def shares(found: Iterable[RuleOutcome]) -> Mapping[str, HitRate]:
    """Return rule → precision, in the form that `kb.learning.precision.calibrated` expects."""
    return {rule_outcome.rule: rule_outcome.precision for rule_outcome in found if rule_outcome.precision.n}


def faults_of(rule: Rule) -> frozenset[str]:
    """Return the fault classes that a rule can name."""
    if rule.table is None:
        return frozenset({rule.fault})
    rows = (*rule.table.rows.values(), *((rule.table.default,) if rule.table.default else ()))
    return frozenset({rule.fault, *(row.fault for row in rows if row.fault)})


def _naming(rulebook: Rulebook) -> Mapping[str, tuple[str, ...]]:
    """Return fault → the rules that name it."""
    found: dict[str, tuple[str, ...]] = {}
    for rule in rulebook.rules:
        for fault in faults_of(rule):
            found[fault] = (*found.get(fault, ()), rule.id)
    return found


def _worst_first(rule_outcome: RuleOutcome) -> tuple[object, ...]:
    return (
        not rule_outcome.precision.n,
        rule_outcome.precision.high,
        -rule_outcome.precision.n,
        -rule_outcome.fired,
        rule_outcome.rule,
    )


def render(found: Sequence[RuleOutcome], statuses: Mapping[str, str]) -> str:
    """Render the rules that ever fired as text, worst first, and the number of those that never did."""
    fired = [rule_outcome for rule_outcome in found if rule_outcome.fired]
    silent = [
        rule_outcome
        for rule_outcome in found
        if not rule_outcome.fired and statuses.get(rule_outcome.rule) not in (None, "deprecated", "draft")
    ]
    judged = sum(rule_outcome.precision.n for rule_outcome in fired)
    right = sum(rule_outcome.confirmed for rule_outcome in fired)
    lines = [
        f"{sum(rule_outcome.fired for rule_outcome in fired)} first answers of {len(fired)} rules; correct: {HitRate(right, judged).words}",
        "",
        f"{'confirmed':>9} {'refuted':>8} {'unseen':>7} {'missed':>7}  {'precision, 95 %':22} rule",
    ]
    lines += [_line(rule_outcome) for rule_outcome in fired]
    lines.append(f"\n{len(silent)} rules were never the first answer here")
    return "\n".join(lines)


def _line(rule_outcome: RuleOutcome) -> str:
    seen = rule_outcome.precision
    told = f"{seen.hits / seen.n:4.0%} ({seen.low:.0%} to {seen.high:.0%})" if seen.n else "no feedback"
    return f"{rule_outcome.confirmed:9d} {rule_outcome.refuted:8d} {rule_outcome.unseen:7d} {rule_outcome.missed:7d}  {told:22} {rule_outcome.rule}"


def as_json(found: Sequence[RuleOutcome]) -> Iterator[Mapping[str, Any]]:
    """Return each rule as plain values."""
    for rule_outcome in found:
        seen = rule_outcome.precision
        yield {
            "rule": rule_outcome.rule,
            "confirmed": rule_outcome.confirmed,
            "refuted": rule_outcome.refuted,
            "unseen": rule_outcome.unseen,
            "missed": rule_outcome.missed,
            "precision": seen.hits / seen.n if seen.n else None,
            "n": seen.n,
            "low": seen.low,
            "high": seen.high,
        }
