"""Earlier incidents, as far as a new one is told of them: which are the job's own tries, and what rules may ask of the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kb.digest.rows import SOUND, UNKNOWN, DigestRow
from kb.facts.history import EarlierAttempt, ExcludedNode, History, PastIncident, history_digest
from kb.precedents.incident_trace import FaultPlace, IncidentTrace

DAY = 86400.0
MOST_TRIES = 16
MOST_PAST = 2000


@dataclass(frozen=True, slots=True)
class EarlierIncident:
    """An incident of the same tenant and cluster that ended before. `own`: it is a try of this very job.

    `reached`: its last iteration; `advice`: what was said to do then.
    """

    row: DigestRow
    own: bool = False
    reached: int | None = None
    advice: str = "none"
    trace: IncidentTrace = field(default_factory=IncidentTrace)

    @property
    def failed(self) -> bool:
        """Whether something failed in it."""
        return self.row.verdict != "no_fault" and self.row.phase not in SOUND

    @property
    def places(self) -> tuple[FaultPlace, ...]:
        """What was found, and where: what people say of it goes before the first diagnosis."""
        row = self.row
        if row.cause is None:
            return self.trace.found or _of_row(row)
        if row.cause not in ("shown", "fault") or not row.said_fault:
            return ()
        said = [FaultPlace(row.rule or "", row.said_fault, node) for node in row.blamed] or [
            FaultPlace("", row.said_fault)
        ]
        known = [one for one in self.trace.found if one.fault == row.said_fault]
        return tuple(known) if known and not row.said_nodes else tuple(said)


def history_of(earlier: Sequence[EarlierIncident], at: float, barred: Sequence[ExcludedNode] = ()) -> History:
    """What rules and the decision are told. `at`: when this job ended, seconds since the epoch."""
    failed = [one for one in earlier if one.failed]
    past = {
        PastIncident(
            place.rule,
            place.fault,
            round(max(0.0, at - one.row.at) / DAY, 3),
            place.node,
            place.gpu,
            one.row.name,
        )
        for one in failed
        for place in one.places
    }
    told = tuple(sorted(past, key=lambda one: (one.days_ago, repr(one)))[:MOST_PAST])
    tries = tuple(_try(one) for one in failed if one.own)[-MOST_TRIES:]
    nodes = tuple(sorted(set(barred), key=repr))
    return History(told, history_digest(told, tries, nodes), tries, nodes)


def with_attempts(history: History, attempts: History) -> History:
    """The history with the attempts that lie in the bundle, of which no incident is known."""
    if not attempts.past and not attempts.tries:
        return history
    past = tuple(dict.fromkeys((*attempts.past, *history.past)))
    tries = history.tries or attempts.tries
    return History(past, history_digest(past, tries, history.barred), tries, history.barred)


def _try(one: EarlierIncident) -> EarlierAttempt:
    first = (one.row.known,) if one.row.known != UNKNOWN else ()
    faults = tuple(dict.fromkeys((*first, *(place.fault for place in one.places))))
    return EarlierAttempt(
        faults, one.advice, one.trace.without, one.trace.ran_on, one.row.id or None, one.reached, one.trace.shards
    )


def _of_row(row: DigestRow) -> tuple[FaultPlace, ...]:
    """What a row alone tells: the first diagnosis with the nodes that it suspects."""
    if row.fault is None or row.unanswered:
        return ()
    return tuple(FaultPlace(row.rule or "", row.fault, node) for node in row.nodes) or (
        FaultPlace(row.rule or "", row.fault),
    )
