"""The earlier incidents known for a new one: which are the job's own tries, and what rules may ask of the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kb.digest.rows import SOUND, UNKNOWN, DigestRow
from kb.facts.history import EarlierAttempt, ExcludedNode, History, PastIncident, history_digest
from kb.model import NOT_FAILED
from kb.precedents.incident_trace import FaultPlace, IncidentTrace

DAY = 86400.0
MOST_TRIES = 16
MOST_PAST = 2000


@dataclass(frozen=True, slots=True)
class EarlierIncident:
    """An earlier incident of the same tenant and cluster. `own`: it is a try of this very job.

    `reached`: its last iteration; `advice`: what was advised then.
    """

    row: DigestRow
    own: bool = False
    reached: int | None = None
    advice: str = "none"
    trace: IncidentTrace = field(default_factory=IncidentTrace)

    @property
    def failed(self) -> bool:
        """Whether something failed in it."""
        return self.row.verdict not in NOT_FAILED and self.row.phase not in SOUND

    @property
    def places(self) -> tuple[FaultPlace, ...]:
        """What was found, and where: what people said takes precedence over the first diagnosis."""
        row = self.row
        if row.cause is None:
            return self.trace.found or _of_row(row)
        if row.cause not in ("shown", "fault") or not row.said_fault:
            return ()
        found = [FaultPlace(row.rule or "", row.said_fault, node) for node in row.blamed] or [
            FaultPlace("", row.said_fault)
        ]
        known = [item for item in self.trace.found if item.fault == row.said_fault]
        return tuple(known) if known and not row.said_nodes else tuple(found)


def history_of(earlier: Sequence[EarlierIncident], at: float, barred: Sequence[ExcludedNode] = ()) -> History:
    """The input of rules and the decision. `at`: when this job ended, seconds since the epoch."""
    failed = [earlier_incident for earlier_incident in earlier if earlier_incident.failed]
    past = {
        PastIncident(
            place.rule,
            place.fault,
            round(max(0.0, at - earlier_incident.row.at) / DAY, 3),
            place.node,
            place.gpu,
            earlier_incident.row.name,
        )
        for earlier_incident in failed
        for place in earlier_incident.places
    }
    newest = tuple(sorted(past, key=lambda past_incident: (past_incident.days_ago, repr(past_incident)))[:MOST_PAST])
    tries = tuple(_try(earlier_incident) for earlier_incident in failed if earlier_incident.own)[-MOST_TRIES:]
    nodes = tuple(sorted(set(barred), key=repr))
    return History(newest, history_digest(newest, tries, nodes), tries, nodes)


def with_attempts(history: History, attempts: History) -> History:
    """The history with those attempts of the bundle for which no incident is known."""
    if not attempts.past and not attempts.tries:
        return history
    past = tuple(dict.fromkeys((*attempts.past, *history.past)))
    tries = history.tries or attempts.tries
    return History(past, history_digest(past, tries, history.barred), tries, history.barred)


def _try(earlier_incident: EarlierIncident) -> EarlierAttempt:
    first = (earlier_incident.row.known,) if earlier_incident.row.known != UNKNOWN else ()
    faults = tuple(dict.fromkeys((*first, *(place.fault for place in earlier_incident.places))))
    return EarlierAttempt(
        faults,
        earlier_incident.advice,
        earlier_incident.trace.without,
        earlier_incident.trace.ran_on,
        earlier_incident.row.id or None,
        earlier_incident.reached,
        earlier_incident.trace.shards,
    )


def _of_row(row: DigestRow) -> tuple[FaultPlace, ...]:
    """What a row alone contains: the first diagnosis with the nodes that it suspects."""
    if row.fault is None or row.unanswered:
        return ()
    return tuple(FaultPlace(row.rule or "", row.fault, node) for node in row.nodes) or (
        FaultPlace(row.rule or "", row.fault),
    )
