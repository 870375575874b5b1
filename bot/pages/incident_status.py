"""The status of an incident for its page: its state in sentences, feedback, actions, and merged incidents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime

from bot.incidents.ledger import Ledger
from bot.pages.incident import IncidentStatus
from bot.store.incident_state import State, state_of
from bot.store.incidents import Incident


def about_of(
    ledger: Ledger, incident: Incident, evidence: str, now: datetime, to: Callable[[int], str] | None = None
) -> IncidentStatus:
    """Return the status. `evidence`: where the evidence is, as text; `to`: returns the URL of an incident's page, if pages are served."""
    family, state = ledger.lifecycle.family(incident.id), state_of(incident, now)

    def linked(item: tuple[int, str]) -> tuple[int, str, str | None]:
        return (*item, to(item[0]) if to is not None else None)

    return IncidentStatus(
        number=incident.id,
        at=incident.created_at,
        said=ledger.closings.annotations(incident.id),
        evidence=evidence,
        pinned=incident.pinned,
        state=state,
        lived=tuple(_lived(incident, state)),
        steps=ledger.lifecycle.steps(incident.id),
        whole=None if family.whole is None else linked(family.whole),
        parts=tuple(linked(part) for part in family.parts),
    )


def _lived(incident: Incident, state: State) -> Iterator[str]:
    if incident.assignee and state in ("open", "acknowledged", "snoozed"):
        yield f"{'Acknowledged by' if incident.acked_at is not None else 'Assigned to'} {incident.assignee}"
    if state == "snoozed" and incident.snoozed_until is not None:
        yield f"Snoozed until {incident.snoozed_until:%Y-%m-%d %H:%M}Z"
    if incident.reopened_at is not None and state != "closed":
        yield f"Reopened {incident.reopened_at:%Y-%m-%d %H:%M}Z: earlier feedback no longer applies"
    if incident.backfilled:
        yield "Found by a backfill: nobody was notified at the time"
